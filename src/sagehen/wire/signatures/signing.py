"""Signs requests with SigV4; `sigv4` checks such signatures. Imports only the standard library."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime

__all__ = ["ALGORITHM", "UNSIGNED_PAYLOAD", "Signer", "derive_key"]

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


def derive_key(secret: str, date: str, region: str, service: str) -> bytes:
    """`date`: as YYYYMMDD."""
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class Signer:
    """Signs S3 requests, but not their bodies: the stream that carries them is trusted to be whole,
    and a digest of every body would cost more than its transfer."""

    def __init__(self, access_key: str, secret_key: str, region: str) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._region = region
        self._second = -1
        self._timestamp = ""
        """of `_second`"""
        self._date = ""
        self._key = b""
        """of `_date`"""

    def sign(
        self, method: str, path: str, query: str, headers: Mapping[str, str], now: float
    ) -> dict[str, str]:
        """Returns `headers` with those that sign the request.

        Args:
            path: percent-encoded.
            query: percent-encoded, its parameters in order.
            headers: with `host`; names in lower case.
            now: seconds since the epoch.
        """
        if int(now) != self._second:
            self._second = int(now)
            self._timestamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        timestamp = self._timestamp
        date = timestamp[:8]
        if date != self._date:
            self._key = derive_key(self._secret_key, date, self._region, "s3")
            self._date = date
        signed = {**headers, "x-amz-content-sha256": UNSIGNED_PAYLOAD, "x-amz-date": timestamp}
        names = sorted(signed)
        lines = "".join(f"{name}:{signed[name]}\n" for name in names)
        joined = ";".join(names)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{joined}\n{UNSIGNED_PAYLOAD}"
        scope = f"{date}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"{ALGORITHM}\n{timestamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        signed["authorization"] = (
            f"{ALGORITHM} Credential={self._access_key}/{scope}, SignedHeaders={joined}, "
            f"Signature={signature}"
        )
        return signed
