"""Reads and writes checksum headers."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from sagehen.services.s3.errors import invalid_request, not_implemented
from sagehen.services.s3.http.xml import text
from sagehen.services.s3.storage.digests import ALGORITHMS
from sagehen.services.s3.storage.records import Checksum

__all__ = [
    "ChecksumRequest",
    "checksum_elements",
    "checksum_headers",
    "element_name",
    "read_algorithm",
    "read_expected_checksum",
    "read_object_checksum",
]

_HEADER = "x-amz-checksum-"
_NOT_VALUES = {f"{_HEADER}algorithm", f"{_HEADER}mode", f"{_HEADER}type"}
_ELEMENTS = {
    "crc32": "ChecksumCRC32",
    "crc32c": "ChecksumCRC32C",
    "crc64nvme": "ChecksumCRC64NVME",
    "md5": "ChecksumMD5",
    "sha1": "ChecksumSHA1",
    "sha256": "ChecksumSHA256",
    "sha512": "ChecksumSHA512",
}


@dataclass(frozen=True)
class ChecksumRequest:
    algorithm: str
    value: str | None
    """base64; None if it comes in the trailer"""

    @property
    def header(self) -> str:
        return _HEADER + self.algorithm


def read_expected_checksum(headers: Mapping[str, str]) -> ChecksumRequest | None:
    """Raises AwsError for several checksums, a malformed value or an unknown algorithm."""
    checksums = {n: v for n, v in headers.items() if n.startswith(_HEADER) and n not in _NOT_VALUES}
    announced = headers.get("x-amz-trailer", "").strip().lower()
    if len(checksums) + bool(announced) > 1:
        raise invalid_request(
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    for name, value in checksums.items():
        return ChecksumRequest(
            _checked_algorithm(name.removeprefix(_HEADER), name), _checked_value(name, value)
        )
    if announced:
        if not announced.startswith(_HEADER):
            raise invalid_request(
                "The value specified in the x-amz-trailer header is not supported"
            )
        return ChecksumRequest(_checked_algorithm(announced.removeprefix(_HEADER), announced), None)
    if headers.get("x-amz-sdk-checksum-algorithm"):
        raise invalid_request(
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or "
            "x-amz-trailer headers were found."
        )
    return None


def read_object_checksum(headers: Mapping[str, str]) -> str | None:
    """Returns the expected checksum without the number of parts that may follow a composite one."""
    for name, value in headers.items():
        algorithm = name.removeprefix(_HEADER)
        if name.startswith(_HEADER) and algorithm in ALGORITHMS:
            _checked_value(name, value.partition("-")[0])
            return value
    return None


def read_algorithm(headers: Mapping[str, str]) -> str | None:
    algorithm = headers.get(f"{_HEADER}algorithm")
    if not algorithm:
        return None
    return _checked_algorithm(algorithm.lower(), f"{_HEADER}algorithm: {algorithm}")


def checksum_headers(checksum: Checksum | None) -> dict[str, str]:
    if checksum is None:
        return {}
    return {
        _HEADER + checksum.algorithm: checksum.value,
        f"{_HEADER}type": checksum.kind.value,
    }


def checksum_elements(checksum: Checksum | None) -> str:
    if checksum is None:
        return ""
    return text(element_name(checksum.algorithm), checksum.value) + text(
        "ChecksumType", checksum.kind.value
    )


def element_name(algorithm: str) -> str:
    return _ELEMENTS[algorithm]


def _checked_algorithm(algorithm: str, description: str) -> str:
    if algorithm not in ALGORITHMS:
        raise not_implemented(
            f"The checksum of {description!r} (there are {', '.join(ALGORITHMS)})"
        )
    return algorithm


def _checked_value(name: str, value: str) -> str:
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != ALGORITHMS[name.removeprefix(_HEADER)]:
        raise invalid_request(f"Value for {name} header is invalid.")
    return value
