"""Condition and range headers."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from sagehen.services.s3.errors import header_not_implemented
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
    headers: Mapping[str, str], info: ObjectInfo, now: float, prefix: str = ""
) -> tuple[ConditionResult, str]:
    """Evaluates `if-match` and its like; also returns the deciding header.

    Dates count only without ETags (RFC 9110, 13.2.2), and If-Modified-Since not in the future.

    Args:
        now: seconds since the epoch.
    """
    modified_at = int(info.modified_at)
    match = headers.get(f"{prefix}if-match")
    if match is not None:
        if not _names(match, info.etag):
            return ConditionResult.FAILED, "If-Match"
    elif modified_at > _seconds(headers.get(f"{prefix}if-unmodified-since"), math.inf):
        return ConditionResult.FAILED, "If-Unmodified-Since"
    none_match = headers.get(f"{prefix}if-none-match")
    if none_match is not None:
        if _names(none_match, info.etag):
            return ConditionResult.NOT_MODIFIED, "If-None-Match"
    elif modified_at <= _seconds(headers.get(f"{prefix}if-modified-since"), -math.inf) <= now:
        return ConditionResult.NOT_MODIFIED, "If-Modified-Since"
    return ConditionResult.GO_ON, ""


def precondition_failed(header: str) -> AwsError:
    return AwsError(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        412,
        Condition=header,
    )


def read_write_condition(headers: Mapping[str, str], *, deletes: bool = False) -> WriteCondition:
    """Raises AwsError NotImplemented for conditions that S3 lacks too."""
    none_match, match = headers.get("if-none-match"), headers.get("if-match")
    if none_match is not None and match is not None:
        raise header_not_implemented(
            "If-Match,If-None-Match", "Multiple conditional request headers present in the request"
        )
    if none_match not in (None, "*"):
        raise _value_not_implemented("If-None-Match")
    if match == "*" and not deletes:
        raise _value_not_implemented("If-Match")
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


def _value_not_implemented(name: str) -> AwsError:
    return header_not_implemented(
        name, f"We don't accept the provided value of {name} header for this API"
    )


def _names(header: str, etag: str) -> bool:
    named = [name.strip().removeprefix("W/").strip('"') for name in header.split(",")]
    return "*" in named or etag in named


def _seconds(date: str | None, otherwise: float) -> float:
    """Returns `otherwise` for no date or a malformed one."""
    if date is None:
        return otherwise
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return otherwise
