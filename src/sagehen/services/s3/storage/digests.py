"""S3's checksum algorithms, and joining the checksums of parts."""

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sagehen.services.s3.storage.records import Blob, Checksum, ChecksumKind

__all__ = [
    "ALGORITHMS",
    "DEFAULT_ALGORITHM",
    "JOINABLE",
    "Digest",
    "base64_of",
    "joined_checksum",
    "new_digest",
]

ALGORITHMS: Mapping[str, int] = {
    "crc32": 4,
    "crc32c": 4,
    "crc64nvme": 8,
    "md5": 16,
    "sha1": 20,
    "sha256": 32,
    "sha512": 64,
}
"""bytes of each algorithm's value"""

DEFAULT_ALGORITHM = "crc64nvme"
"""S3's, of uploads without a checksum"""

JOINABLE = ("crc32", "crc32c", "crc64nvme")
"""algorithms that can join checksums of pieces"""


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _CrcDigest:
    def __init__(self, algorithm: str) -> None:
        self._size = ALGORITHMS[algorithm]
        self._update = _crc_function(algorithm)
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._update(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def new_digest(algorithm: str) -> Digest:
    if algorithm in JOINABLE:
        return _CrcDigest(algorithm)
    return hashlib.new(algorithm, usedforsecurity=False)


def _crc_function(algorithm: str) -> Callable[[bytes, int], int]:
    """Returns a function of data and of the CRC of the data before."""
    if algorithm == "crc32":
        return zlib.crc32
    from awscrt import checksums  # 8 MiB, for clients that choose these algorithms

    function: Callable[[bytes, int], int] = getattr(checksums, algorithm)
    return function


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def joined_checksum(
    algorithm: str | None, kind: ChecksumKind, parts: Sequence[Blob]
) -> Checksum | None:
    """Without an algorithm joins the parts' default checksums, which parts uploaded to an earlier
    version lack."""
    values = [base64.b64decode(part.checksum or "") for part in parts]
    if algorithm is None:
        algorithm = DEFAULT_ALGORITHM
        if any(len(value) != ALGORITHMS[algorithm] for value in values):
            return None
    if kind is ChecksumKind.COMPOSITE:
        digest = new_digest(algorithm)
        digest.update(b"".join(values))
        return Checksum(algorithm, f"{base64_of(digest.digest())}-{len(parts)}", kind)
    whole = _joined_crc(algorithm, values, [part.size for part in parts])
    return Checksum(algorithm, base64_of(whole), kind)


def _joined_crc(algorithm: str, values: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    from awscrt import checksums

    combine = getattr(checksums, f"combine_{algorithm}")
    whole = 0
    for value, size in zip(values, sizes, strict=True):
        whole = combine(whole, int.from_bytes(value, "big"), size)
    return whole.to_bytes(ALGORITHMS[algorithm], "big")
