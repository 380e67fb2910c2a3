"""Checks chained signatures of chunks and trailers in a streamed body."""

import hashlib
import hmac

from sagehen.wire.scope import error_family
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.sigv4 import Identity

__all__ = ["ChunkSignatures"]

_EMPTY = hashlib.sha256().hexdigest()


class ChunkSignatures:
    """Checks one body's signatures, in order."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._previous = identity.seed_signature

    def check(self, signature: str, chunk_sha256: str) -> None:
        """Checks the next chunk; the last one is empty. Raises AwsError."""
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY}\n{chunk_sha256}", signature)

    def check_trailer(self, signature: str, trailer: bytes) -> None:
        """Checks the trailer after all chunks. Raises AwsError.

        Args:
            trailer: `name:value` lines as sent, each ended by one newline, without
                `x-amz-trailer-signature`.
        """
        digest = hashlib.sha256(trailer).hexdigest()
        self._check("AWS4-HMAC-SHA256-TRAILER", digest, signature)

    def _check(self, algorithm: str, rest: str, signature: str) -> None:
        identity = self._identity
        to_sign = f"{algorithm}\n{identity.timestamp}\n{identity.scope}\n{self._previous}\n{rest}"
        ours = hmac.digest(identity.signing_key, to_sign.encode(), "sha256").hex()
        if not hmac.compare_digest(ours.encode(), signature.encode()):
            family = error_family(identity.service)
            raise refusals.wrong_signature(family, identity.access_key, signature, "", to_sign)
        self._previous = signature
