"""S3's checksum algorithms, and joining the checksums of parts."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from sagehen.services.s3.storage.crc import CRC32, CRC32C, CRC64NVME, Crc
from sagehen.services.s3.storage.records import Blob, Checksum, ChecksumKind

__all__ = ["ALGORITHMS", "JOINABLE", "Digest", "base64_of", "joined_checksum", "new_digest"]

JOINABLE: Mapping[str, Crc] = {"crc32": CRC32, "crc32c": CRC32C, "crc64nvme": CRC64NVME}
"""algorithms that can join checksums of pieces"""

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


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _CrcDigest:
    def __init__(self, crc: Crc) -> None:
        self._crc = crc
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._crc.update(self._value, data)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._crc.size, "big")


def new_digest(algorithm: str) -> Digest:
    if algorithm in JOINABLE:
        return _CrcDigest(JOINABLE[algorithm])
    return hashlib.new(algorithm, usedforsecurity=False)


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def joined_checksum(algorithm: str, kind: ChecksumKind, parts: Sequence[Blob]) -> Checksum:
    values = [base64.b64decode(part.checksum or "") for part in parts]
    if kind is ChecksumKind.COMPOSITE:
        digest = new_digest(algorithm)
        digest.update(b"".join(values))
        return Checksum(algorithm, f"{base64_of(digest.digest())}-{len(parts)}", kind)
    crc = JOINABLE[algorithm]
    whole = 0
    for part, value in zip(parts, values, strict=True):
        whole = crc.join(whole, int.from_bytes(value, "big"), part.size)
    return Checksum(algorithm, base64_of(whole.to_bytes(crc.size, "big")), kind)
