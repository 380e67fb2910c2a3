"""Condition and range headers."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from sagehen.services.s3.errors import not_implemented
from sagehen.services.s3.storage.records import ObjectInfo, WriteCondition
from sagehen.wire.errors import AwsError

__all__ = ["ConditionResult", "judge", "precondition_failed", "read_range", "read_write_condition"]

_MOST_RANGE_DIGITS = 1000
"""above any real size, below Python's limit for parsing integers"""


class ConditionResult(Enum):
    GO_ON = auto()
    NOT_MODIFIED = auto()
    FAILED = auto()


def judge(
    headers: Mapping[str, str], info: ObjectInfo, prefix: str = ""
) -> tuple[ConditionResult, str]:
    """Evaluates `if-match` and its like; also returns the deciding header.

    Dates count only without ETags (RFC 9110, 13.2.2).
    """
    match = headers.get(f"{prefix}if-match")
    if match is not None:
        if not _names(match, info.etag):
            return ConditionResult.FAILED, "If-Match"
    elif _is_after(info, headers.get(f"{prefix}if-unmodified-since")) is True:
        return ConditionResult.FAILED, "If-Unmodified-Since"
    none_match = headers.get(f"{prefix}if-none-match")
    if none_match is not None:
        if _names(none_match, info.etag):
            return ConditionResult.NOT_MODIFIED, "If-None-Match"
    elif _is_after(info, headers.get(f"{prefix}if-modified-since")) is False:
        return ConditionResult.NOT_MODIFIED, "If-Modified-Since"
    return ConditionResult.GO_ON, ""


def precondition_failed(header: str) -> AwsError:
    return AwsError(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        412,
        Condition=header,
    )


def read_write_condition(headers: Mapping[str, str]) -> WriteCondition:
    """Raises AwsError NotImplemented for conditions that S3 lacks too."""
    none_match = headers.get("if-none-match")
    if none_match not in (None, "*"):
        raise not_implemented("If-None-Match of a write with anything but *")
    match = headers.get("if-match")
    return WriteCondition(
        absent=none_match is not None, etag=None if match is None else match.strip().strip('"')
    )


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Returns the first byte and length, or None for the whole object.

    Ignores headers other than one byte range, as in RFC 9110. Raises AwsError InvalidRange.
    """
    unit, _, spans = (header or "").replace(" ", "").partition("=")
    first, dash, last = spans.partition("-")
    if unit != "bytes" or not dash or not (first + last).isdigit() or not spans.isascii():
        return None
    if len(spans) > _MOST_RANGE_DIGITS:
        return None
    if not first:
        start, end = max(size - int(last), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start >= end:
        raise AwsError(
            "InvalidRange",
            "The requested range is not satisfiable",
            416,
            RangeRequested=header,
            ActualObjectSize=size,
        )
    return start, end - start


def _names(header: str, etag: str) -> bool:
    named = [name.strip().removeprefix("W/").strip('"') for name in header.split(",")]
    return "*" in named or etag in named


def _is_after(info: ObjectInfo, date: str | None) -> bool | None:
    """Compares whole seconds; returns None for a malformed date."""
    if date is None:
        return None
    try:
        return int(info.modified_at) > parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
