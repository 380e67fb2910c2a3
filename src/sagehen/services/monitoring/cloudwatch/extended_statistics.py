"""Statistics of a distribution: percentiles, trimmed and winsorized means, counts, sums and ranks.

CloudWatch's forms: p99.9 · tm90 · TM(10%:90%) · TM(150:1000) · IQM · WM… · TC… · TS… · PR(:300).
Values are within 1 %, as the sketches are.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from sagehen.frame.statistics import Statistics

__all__ = ["low_sample_count", "read_extended"]

Compute = Callable[[Statistics], float | None]
_Distribution = list[tuple[float, float]]
"""values and their counts, ascending"""

_PERCENT = r"100(?:\.0+)?|[0-9]{1,2}(?:\.[0-9]{1,10})?"
_SHORT = re.compile(rf"(p|tm|wm|tc|ts)({_PERCENT})")
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,10})?"
_LONG = re.compile(rf"(TM|WM|TC|TS|PR)\(({_NUMBER})?(%?):({_NUMBER})?(%?)\)")
_INTERQUARTILE = ("IQM", "iqm")


class _Bounds(NamedTuple):
    """The part of a distribution above `low`, up to and including `high`."""

    low: float
    high: float
    are_percent: bool


@lru_cache(256)
def read_extended(name: str) -> Compute | None:
    """Returns how the statistic is computed; None for a name that is no extended statistic.

    A computed None means: unknown, as for sets that were aggregated before and negative values.
    """
    if name in _INTERQUARTILE:
        return partial(_compute, _mean, _Bounds(25, 75, are_percent=True))
    if match := _SHORT.fullmatch(name):
        if match[1] == "p":
            return partial(_percentile, float(match[2]))
        bounds = _Bounds(0, float(match[2]), are_percent=True)
        return partial(_compute, _KINDS[match[1].upper()], bounds)
    return _read_long(name)


def low_sample_count(name: str) -> float:
    """Returns the number of samples below which a percentile says little; 0 for what is none."""
    match = _SHORT.fullmatch(name)
    if match is None or match[1] != "p":
        return 0
    share = float(match[2]) / 100
    tail = 1 - share if share >= 0.5 else share
    return 0 if tail <= 0 else round(10 / tail, 6)  # p0 and p100 are the extremes


def _read_long(name: str) -> Compute | None:
    match = _LONG.fullmatch(name)
    if match is None or (match[2] is None and match[4] is None):
        return None
    kind, low, low_sign, high, high_sign = match.groups()
    if (low is None and low_sign) or (high is None and high_sign):
        return None
    signs = {sign for bound, sign in ((low, low_sign), (high, high_sign)) if bound is not None}
    if len(signs) > 1:
        return None  # a percentage and a value
    are_percent = signs == {"%"}
    bounds = _Bounds(
        float(low) if low is not None else 0 if are_percent else -math.inf,
        float(high) if high is not None else 100 if are_percent else math.inf,
        are_percent,
    )
    if bounds.low >= bounds.high or (are_percent and (bounds.high > 100 or kind == "PR")):
        return None
    return partial(_compute, _KINDS[kind], bounds)


def _percentile(percent: float, statistics: Statistics) -> float | None:
    return None if statistics.minimum < 0 else statistics.percentile(percent)


_Kind = Callable[[Statistics, _Distribution, _Bounds], float | None]


def _compute(kind: _Kind, bounds: _Bounds, statistics: Statistics) -> float | None:
    distribution = statistics.distribution()
    if not distribution or statistics.minimum < 0:
        return None
    return kind(statistics, distribution, bounds)


def _within(distribution: _Distribution, bounds: _Bounds) -> _Distribution:
    """Returns the part within the bounds; at a percentile, part of a value's count."""
    if not bounds.are_percent:
        return [
            (value, count) for value, count in distribution if bounds.low < value <= bounds.high
        ]
    total = math.fsum(count for _, count in distribution)
    low, high = total * bounds.low / 100, total * bounds.high / 100
    part, before = [], 0.0
    for value, count in distribution:
        share = min(before + count, high) - max(before, low)
        if share > 1e-9 * total:
            part.append((value, share))
        before += count
    return part


def _count(_: Statistics, distribution: _Distribution, bounds: _Bounds) -> float:
    return math.fsum(count for _, count in _within(distribution, bounds))


def _sum(_: Statistics, distribution: _Distribution, bounds: _Bounds) -> float:
    return math.fsum(value * count for value, count in _within(distribution, bounds))


def _mean(_: Statistics, distribution: _Distribution, bounds: _Bounds) -> float | None:
    part = _within(distribution, bounds)
    count = math.fsum(count for _, count in part)
    return math.fsum(value * count for value, count in part) / count if count else None


def _winsorized_mean(
    statistics: Statistics, distribution: _Distribution, bounds: _Bounds
) -> float | None:
    low, high = bounds.low, bounds.high
    if bounds.are_percent:
        low = _percentile(low, statistics) or 0.0
        high = _percentile(high, statistics) or 0.0
    total = math.fsum(count for _, count in distribution)
    return math.fsum(min(max(value, low), high) * count for value, count in distribution) / total


def _rank(_: Statistics, distribution: _Distribution, bounds: _Bounds) -> float:
    total = math.fsum(count for _, count in distribution)
    return 100 * math.fsum(count for _, count in _within(distribution, bounds)) / total


_KINDS: dict[str, _Kind] = {
    "TM": _mean,
    "WM": _winsorized_mean,
    "TC": _count,
    "TS": _sum,
    "PR": _rank,
}
