"""Reads dimensions, periods and statistics of requests."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from sagehen.frame.statistics import Dimensions, Statistics
from sagehen.services.monitoring.cloudwatch.errors import invalid
from sagehen.services.monitoring.cloudwatch.extended_statistics import read_extended

__all__ = [
    "FINEST_PERIOD",
    "FINE_PERIODS",
    "STATISTICS",
    "Statistic",
    "check_period",
    "is_statistic",
    "read_dimensions",
    "value",
    "whole_second",
]

Statistic = str
"""`Average` and the like, or an extended one such as `p99.9`"""

STATISTICS: dict[Statistic, Callable[[Statistics], float | None]] = {
    "SampleCount": lambda seen: seen.count,
    "Average": lambda seen: seen.sum / seen.count,
    "Sum": lambda seen: seen.sum,
    "Minimum": lambda seen: seen.minimum,
    "Maximum": lambda seen: seen.maximum,
}

FINEST_PERIOD = 10
"""seconds; shorter periods have the points of this one"""
FINE_PERIODS = (FINEST_PERIOD, 20, 30)
"""seconds, for which samples of ten seconds are kept"""
_FINER_PERIODS = (1, 5)
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


def is_statistic(name: str) -> bool:
    return name in STATISTICS or read_extended(name) is not None


def value(statistic: Statistic, statistics: Statistics) -> float | None:
    """Returns None for extended statistics of pre-aggregated sets and of negative values, as
    CloudWatch does."""
    compute = STATISTICS.get(statistic) or read_extended(statistic)
    return None if compute is None else compute(statistics)


def check_period(seconds: int) -> int:
    """Raises AwsError for a period that CloudWatch lacks."""
    is_short = seconds in (*_FINER_PERIODS, *FINE_PERIODS)
    if not is_short and (seconds % 60 or not 0 < seconds <= _LONGEST_PERIOD):
        raise invalid(
            "The parameter Period must be 1, 5, 10, 20, 30 or a multiple of 60, and at most a "
            f"year: it is {seconds} seconds."
        )
    return seconds


def whole_second(moment: datetime) -> datetime:
    """CloudWatch's times have no fractions of a second."""
    return moment.replace(microsecond=0)


def _is_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and not text.isspace() and bool(text)
