"""Many values as few numbers: how many, their sum, least and greatest, and about how they lie.

How they lie is a DDSketch, with its own mapping of values to buckets, kept as a plain dictionary:
so two of them merge by adding, and percentiles are within 1 %.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

from ddsketch.mapping import LogarithmicMapping

from sagehen.domain.latencies import RELATIVE_ERROR, Latencies

__all__ = ["MOST_BUCKETS", "Statistics", "of_latencies", "of_set", "of_values"]

MOST_BUCKETS = 2048
"""Of one set; beyond it the lowest become one. Values of one kind fill far fewer."""

_MAPPING = LogarithmicMapping(RELATIVE_ERROR)
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
        """The least value that `percent` of all did not exceed, within 1 %; None if nobody knows.

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
