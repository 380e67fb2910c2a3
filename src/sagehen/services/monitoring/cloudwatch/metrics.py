"""Reads dimensions, periods and statistics of requests."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from sagehen.frame.statistics import Dimensions, Statistics
from sagehen.services.monitoring.cloudwatch.errors import invalid

__all__ = [
    "STATISTICS",
    "Statistic",
    "is_percentile",
    "period_minutes",
    "read_dimensions",
    "value",
    "whole_second",
]

Statistic = str
"""`Average` and the like, or a percentile such as `p99.9`"""

STATISTICS: dict[Statistic, Callable[[Statistics], float]] = {
    "SampleCount": lambda seen: seen.count,
    "Average": lambda seen: seen.sum / seen.count,
    "Sum": lambda seen: seen.sum,
    "Minimum": lambda seen: seen.minimum,
    "Maximum": lambda seen: seen.maximum,
}

_PERCENTILE = re.compile(r"p(100(?:\.0+)?|[0-9]{1,2}(?:\.[0-9]{1,10})?)")
_FINE_PERIODS = (1, 5, 10, 20, 30)
_LONGEST_PERIOD = 86_400 * 365


def read_dimensions(members: Iterable[dict[str, Any]], path: str) -> Dimensions:
    """Returns dimensions sorted by name; raises AwsError for duplicates or invalid text."""
    dimensions: dict[str, str] = {}
    for number, member in enumerate(members, 1):
        where = f"{path}.member.{number}"
        name, content = member["Name"], member["Value"]
        if not _is_text(name) or name.startswith(":"):
            raise invalid(f"The value {name[:64]} for parameter {where}.Name is invalid.")
        if not _is_text(content):
            raise invalid(f"The value {content[:64]} for parameter {where}.Value is invalid.")
        if name in dimensions:
            raise invalid(f"The dimension {name[:64]} comes twice in {path}.")
        dimensions[name] = content
    return tuple(sorted(dimensions.items()))


def is_percentile(statistic: Statistic) -> bool:
    return _PERCENTILE.fullmatch(statistic) is not None


def value(statistic: Statistic, statistics: Statistics) -> float | None:
    """Returns None for percentiles of pre-aggregated sets and of negative values, as CloudWatch
    does."""
    compute = STATISTICS.get(statistic)
    if compute is not None:
        return compute(statistics)
    return None if statistics.minimum < 0 else statistics.percentile(float(statistic[1:]))


def period_minutes(seconds: int) -> int:
    """Raises AwsError for a period that CloudWatch lacks or under a minute."""
    if seconds in _FINE_PERIODS:
        raise invalid(
            f"The parameter Period must be a multiple of 60, not {seconds}: Sagehen keeps samples "
            "by the minute."
        )
    if seconds % 60 or not 0 < seconds <= _LONGEST_PERIOD:
        raise invalid(
            "The parameter Period must be a multiple of 60 and at most a year: it is "
            f"{seconds} seconds."
        )
    return seconds // 60


def whole_second(moment: datetime) -> datetime:
    """CloudWatch's times have no fractions of a second."""
    return moment.replace(microsecond=0)


def _is_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and not text.isspace() and bool(text)
