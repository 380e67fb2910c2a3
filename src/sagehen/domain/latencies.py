"""Many times as counts in buckets: percentiles within 1 %, that add up over processes.

A DDSketch, with its mapping of values to buckets. The buckets are a plain dictionary, so that two
sketches merge by adding, and travel as they are.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

import msgspec
from ddsketch.mapping import LogarithmicMapping

__all__ = ["RELATIVE_ERROR", "Latencies", "add_to_buckets"]

RELATIVE_ERROR = 0.01
MOST_BUCKETS = 1200
"""From 1 µs to some seven hours: as many as integers of microseconds can come to fill here."""

_LONGEST_US = 25_000_000_000
_MAPPING = LogarithmicMapping(RELATIVE_ERROR)

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, le=MOST_BUCKETS)]


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
        bucket = _bucket(microseconds)
        buckets[bucket] = buckets.get(bucket, 0) + count


@lru_cache(2048)  # Of a few hundred times of quick models; slow ones never come to the same twice.
def _bucket(microseconds: int) -> int:
    return int(_MAPPING.key(min(max(microseconds, 1), _LONGEST_US)))
