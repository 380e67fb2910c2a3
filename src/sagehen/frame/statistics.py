"""Mergeable statistics of metrics, with percentiles within 1 % from a DDSketch.

A sketch is a dictionary of buckets, so that merging is adding.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from ddsketch.mapping import LogarithmicMapping

__all__ = [
    "MAX_BUCKETS",
    "RELATIVE_ERROR",
    "Dimensions",
    "Latencies",
    "Series",
    "Statistics",
    "add_to_buckets",
    "as_dimensions",
    "of_latencies",
    "of_set",
    "of_values",
]

RELATIVE_ERROR = 0.01
MAX_LATENCY_BUCKETS = 1200
"""from 1 µs to about seven hours"""

_LONGEST_US = 25_000_000_000
_MAPPING = LogarithmicMapping(RELATIVE_ERROR)

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, le=MAX_LATENCY_BUCKETS)]


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """A latency sketch, in microseconds."""

    count: _Count = 0
    sum: _Count = 0
    buckets: dict[_Bucket, _Count] = {}

    def __add__(self, other: "Latencies") -> "Latencies":
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Latencies(count=self.count + other.count, sum=self.sum + other.sum, buckets=buckets)

    def __sub__(self, before: "Latencies") -> "Latencies":
        """Subtracts an earlier copy of these counters."""
        added = {
            bucket: count - before.buckets.get(bucket, 0) for bucket, count in self.buckets.items()
        }
        return Latencies(
            count=self.count - before.count,
            sum=self.sum - before.sum,
            buckets={bucket: count for bucket, count in added.items() if count},
        )

    def __le__(self, other: "Latencies") -> bool:
        """Returns whether `other` may be a later copy of these counters."""
        return (
            self.count <= other.count
            and self.sum <= other.sum
            and all(count <= other.buckets.get(bucket, 0) for bucket, count in self.buckets.items())
        )

    def quantile(self, share: float) -> float | None:
        """Returns the time that `share` of all did not exceed; None if empty."""
        rank = share * (sum(self.buckets.values()) - 1)
        below = 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below > rank:
                return float(_MAPPING.value(bucket))
        return None


def add_to_buckets(buckets: dict[int, int], times: Iterable[tuple[int, int]]) -> None:
    """Takes pairs of microseconds and their number."""
    for microseconds, count in times:
        bucket = _latency_bucket(microseconds)
        buckets[bucket] = buckets.get(bucket, 0) + count


@lru_cache(2048)  # slow models' times rarely repeat; quick models have a few hundred
def _latency_bucket(microseconds: int) -> int:
    return int(_MAPPING.key(min(max(microseconds, 1), _LONGEST_US)))


MAX_BUCKETS = 2048
"""per sketch; the lowest buckets beyond it are merged"""

_ZERO = 0
_ONE = 100_000
"""bucket of 1 (negated: of -1). The mapping's range is ±35,000, so that buckets ascend
with values."""
_SMALLEST = 1e-300
"""smaller magnitudes count as 0"""


class Statistics:
    """Mutable statistics of single values or merged sets."""

    __slots__ = ("buckets", "count", "maximum", "minimum", "sum")

    def __init__(self) -> None:
        self.count: float = 0
        self.sum: float = 0
        self.minimum = math.inf
        self.maximum = -math.inf
        self.buckets: dict[int, float] | None = {}
        """count per bucket; None where the distribution is unknown"""

    def add(self, value: float, count: float = 1) -> None:
        self.count += count
        self.sum += value * count
        if value < self.minimum:
            self.minimum = value
        if value > self.maximum:
            self.maximum = value
        if self.buckets is not None:
            bucket = _bucket(value)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def merge(self, other: "Statistics") -> None:
        self.count += other.count
        self.sum += other.sum
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        if self.buckets is None or other.buckets is None:
            self.buckets = None
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        if len(self.buckets) > MAX_BUCKETS:
            self.buckets = _with_fewer(self.buckets)

    def copy(self) -> "Statistics":
        copied = Statistics()
        copied.merge(self)
        return copied

    def distribution(self) -> list[tuple[float, float]] | None:
        """Returns values, within 1 %, and their counts in ascending order; None if unknown."""
        if self.buckets is None:
            return None
        return [
            (min(max(_value(bucket), self.minimum), self.maximum), self.buckets[bucket])
            for bucket in sorted(self.buckets)
        ]

    def percentile(self, percent: float) -> float | None:
        """Returns the least value that `percent` of all did not exceed, within 1 %.

        Of two values, the 90th percentile is the greater one, as in CloudWatch.
        """
        if self.buckets is None or not self.buckets:
            return None
        if percent in (0, 100):
            return self.maximum if percent else self.minimum
        # Binary rounding of 99.9 / 100 * 1000 must not require one more value.
        rank = percent / 100 * sum(self.buckets.values()) * (1 - 1e-12)
        so_far = 0.0
        result = self.maximum
        for bucket in sorted(self.buckets):
            so_far += self.buckets[bucket]
            if so_far >= rank:
                result = _value(bucket)
                break
        return min(max(result, self.minimum), self.maximum)


def of_values(values: Mapping[float, float]) -> Statistics:
    """Takes a count for each value."""
    statistics = Statistics()
    for value, count in values.items():
        statistics.add(value, count)
    return statistics


def of_set(count: float, total: float, minimum: float, maximum: float) -> Statistics:
    """Knows the distribution only where all values are equal."""
    if minimum == maximum:
        return of_values({minimum: count})
    statistics = Statistics()
    statistics.count, statistics.sum, statistics.minimum, statistics.maximum = (
        count,
        total,
        minimum,
        maximum,
    )
    statistics.buckets = None
    return statistics


def of_latencies(latencies: Latencies) -> Statistics:
    """Converts a gateway's sketch; minimum and maximum are within 1 %."""
    statistics = Statistics()
    if latencies.buckets:
        statistics.count, statistics.sum = latencies.count, latencies.sum
        statistics.buckets = {_ONE + bucket: count for bucket, count in latencies.buckets.items()}
        statistics.minimum, statistics.maximum = (
            _value(min(statistics.buckets)),
            _value(max(statistics.buckets)),
        )
    return statistics


@lru_cache(4096)
def _bucket(value: float) -> int:
    if value > _SMALLEST:
        return _ONE + int(_MAPPING.key(value))
    if value < -_SMALLEST:
        return -_ONE - int(_MAPPING.key(-value))
    return _ZERO


def _value(bucket: int) -> float:
    if bucket == _ZERO:
        return 0.0
    return math.copysign(_MAPPING.value(abs(bucket) - _ONE), bucket)


def _with_fewer(buckets: dict[int, float]) -> dict[int, float]:
    ordered = sorted(buckets)
    dropped, remaining = ordered[: 1 - MAX_BUCKETS], ordered[1 - MAX_BUCKETS :]
    merged = {bucket: buckets[bucket] for bucket in remaining}
    lowest = remaining[0]
    merged[lowest] += sum(buckets[bucket] for bucket in dropped)
    return merged


Dimensions = tuple[tuple[str, str], ...]
"""names and values, sorted by name"""


class Series(NamedTuple):
    """The key of a time series. Series that differ only in unit belong to one metric."""

    namespace: str
    name: str
    dimensions: Dimensions
    unit: str = "None"
    """CloudWatch's unit"""

    @property
    def digest(self) -> str:
        return _digest(*self)

    @property
    def metric(self) -> str:
        """A digest without the unit."""
        return _digest(*self[:3])


def as_dimensions(dimensions: dict[str, str]) -> Dimensions:
    return tuple(sorted(dimensions.items()))


@lru_cache(16384)  # the same series are written again and again
def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
