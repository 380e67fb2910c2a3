"""Many values as few numbers: how many, their sum, least and greatest, and about how they lie.

How they lie is a DDSketch, with its own mapping of values to buckets, kept as a plain dictionary:
so two of them merge by adding, and percentiles are within 1 %.

Many times as counts in buckets: percentiles within 1 %, that add up over processes.

A DDSketch, with its mapping of values to buckets. The buckets are a plain dictionary, so that two
sketches merge by adding, and travel as they are.

What CloudWatch keeps values under.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from ddsketch.mapping import LogarithmicMapping

__all__ = [
    "MOST_BUCKETS",
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
MOST_LATENCY_BUCKETS = 1200
"""From 1 µs to some seven hours: as many as integers of microseconds can come to fill here."""

_LONGEST_US = 25_000_000_000
_MAPPING = LogarithmicMapping(RELATIVE_ERROR)

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, le=MOST_LATENCY_BUCKETS)]


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how long in all, and how many were about how long; in microseconds."""

    count: _Count = 0
    sum: _Count = 0
    buckets: dict[_Bucket, _Count] = {}

    def __add__(self, other: "Latencies") -> "Latencies":
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Latencies(count=self.count + other.count, sum=self.sum + other.sum, buckets=buckets)

    def __sub__(self, before: "Latencies") -> "Latencies":
        """What came since `before`, which is of the same counters."""
        added = {one: n - before.buckets.get(one, 0) for one, n in self.buckets.items()}
        return Latencies(
            count=self.count - before.count,
            sum=self.sum - before.sum,
            buckets={one: n for one, n in added.items() if n},
        )

    def __le__(self, other: "Latencies") -> bool:
        """Whether the same counters can show `other` later."""
        return (
            self.count <= other.count
            and self.sum <= other.sum
            and all(count <= other.buckets.get(one, 0) for one, count in self.buckets.items())
        )

    def quantile(self, share: float) -> float | None:
        """The time that `share` of all did not exceed, within RELATIVE_ERROR; None of nothing."""
        rank = share * (sum(self.buckets.values()) - 1)
        below = 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below > rank:
                return float(_MAPPING.value(bucket))
        return None


def add_to_buckets(buckets: dict[int, int], times: Iterable[tuple[int, int]]) -> None:
    """Count `times`, each a number of microseconds and how often it was seen."""
    for microseconds, count in times:
        bucket = _latency_bucket(microseconds)
        buckets[bucket] = buckets.get(bucket, 0) + count


@lru_cache(2048)  # Of a few hundred times of quick models; slow ones never come to the same twice.
def _latency_bucket(microseconds: int) -> int:
    return int(_MAPPING.key(min(max(microseconds, 1), _LONGEST_US)))


MOST_BUCKETS = 2048
"""Of one set; beyond it the lowest become one. Values of one kind fill far fewer."""

_ZERO = 0
_ONE = 100_000
"""The bucket of 1; that of -1 is the same below nothing. The mapping's own numbers, from -35,000 to
35,000 over all numbers there are, lie around it: so the buckets are in the order of the values."""
_SMALLEST = 1e-300
"""What is nearer to nothing counts as nothing."""


class Statistics:
    """Of values that are added one by one, or of sets that are merged; it changes."""

    __slots__ = ("buckets", "count", "maximum", "minimum", "sum")

    def __init__(self) -> None:
        self.count: float = 0
        self.sum: float = 0
        self.minimum = math.inf
        self.maximum = -math.inf
        self.buckets: dict[int, float] | None = {}
        """How many lie in each; None where nobody knows how they lie."""

    def add(self, value: float, count: float = 1) -> None:
        """A value that was seen `count` times."""
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
        """Both sets together."""
        self.count += other.count
        self.sum += other.sum
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        if self.buckets is None or other.buckets is None:
            self.buckets = None
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        if len(self.buckets) > MOST_BUCKETS:
            self.buckets = _with_fewer(self.buckets)

    def copy(self) -> "Statistics":
        made = Statistics()
        made.merge(self)
        return made

    def percentile(self, percent: float) -> float | None:
        """The least value that `percent` of all did not exceed, within 1 %; None: unknown.

        So of two values the 90th percentile is the greater one, as in CloudWatch.
        """
        if self.buckets is None or not self.buckets:
            return None
        if percent in (0, 100):
            return self.maximum if percent else self.minimum
        # What 99.9 / 100 * 1000 is too much, in binary, must not ask for one value more.
        wanted = percent / 100 * sum(self.buckets.values()) * (1 - 1e-12)
        so_far = 0.0
        found = self.maximum
        for bucket in sorted(self.buckets):
            so_far += self.buckets[bucket]
            if so_far >= wanted:
                found = _value(bucket)
                break
        return min(max(found, self.minimum), self.maximum)


def of_values(values: Mapping[float, float]) -> Statistics:
    """Values, each with how often it was seen."""
    made = Statistics()
    for value, count in values.items():
        made.add(value, count)
    return made


def of_set(count: float, total: float, minimum: float, maximum: float) -> Statistics:
    """A set that somebody else has counted; how it lies is known only of one value."""
    if minimum == maximum:
        return of_values({minimum: count})
    made = Statistics()
    made.count, made.sum, made.minimum, made.maximum = count, total, minimum, maximum
    made.buckets = None
    return made


def of_latencies(latencies: Latencies) -> Statistics:
    """The times of a gateway's sketch; the least and the greatest within 1 %."""
    made = Statistics()
    if latencies.buckets:
        made.count, made.sum = latencies.count, latencies.sum
        made.buckets = {_ONE + bucket: count for bucket, count in latencies.buckets.items()}
        made.minimum, made.maximum = _value(min(made.buckets)), _value(max(made.buckets))
    return made


@lru_cache(4096)  # Counters add the same few numbers all the time.
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
    dropped, kept = ordered[: 1 - MOST_BUCKETS], ordered[1 - MOST_BUCKETS :]
    made = {bucket: buckets[bucket] for bucket in kept}
    lowest = kept[0]
    made[lowest] += sum(buckets[bucket] for bucket in dropped)
    return made


Dimensions = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class Series(NamedTuple):
    """Values that belong together. Those that differ only in the unit are of one metric."""

    namespace: str
    name: str
    dimensions: Dimensions
    unit: str = "None"
    """CloudWatch's word for it."""

    @property
    def digest(self) -> str:
        return _digest(*self)

    @property
    def metric(self) -> str:
        """A digest too, of all but the unit."""
        return _digest(*self[:3])


def as_dimensions(given: dict[str, str]) -> Dimensions:
    return tuple(sorted(given.items()))


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
