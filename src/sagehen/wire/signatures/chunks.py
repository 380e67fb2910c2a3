"""Signatures inside a body: of every chunk, and of the trailer, each made over the one before.

For bodies whose `payload_mode` is `STREAMING-AWS4-HMAC-SHA256-PAYLOAD`, with or without `-TRAILER`.
"""

import hashlib
import hmac

from sagehen.wire.scope import error_family
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.sigv4 import Identity

__all__ = ["ChunkSignatures"]

_EMPTY = hashlib.sha256().hexdigest()


class ChunkSignatures:
    """Checks the signatures of one body, in the order of its chunks."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._previous = identity.seed_signature

    def check(self, signature: str, chunk_sha256: str) -> None:
        """The next chunk's. The last chunk is the empty one.

        Raises:
            AwsError: it is not the one that the chunk must have.
        """
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY}\n{chunk_sha256}", signature)

    def check_trailer(self, signature: str, trailer: bytes) -> None:
        """The trailer's, once all chunks are checked.

        Args:
            trailer: its lines as they came but for `x-amz-trailer-signature`, each as
                `name:value` and ended by one newline.
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
