"""Sets of values as few numbers."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.statistics import (
    MAX_BUCKETS,
    Latencies,
    Statistics,
    add_to_buckets,
    of_latencies,
    of_set,
    of_values,
)


def exact(values, percent):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(Fraction(str(percent)) * len(ordered) / 100) - 1)]


@pytest.mark.parametrize("percent", [0, 0.5, 10, 50, 90, 99, 99.9, 100])
def test_percentiles_are_within_one_percent(percent):
    chance = random.Random(7)
    values = [chance.lognormvariate(5, 2) for _ in range(5000)]
    values += [-value for value in values[:1000]] + [0.0] * 50
    seen = Statistics()
    for value in values:
        seen.add(value)
    assert seen.percentile(percent) == pytest.approx(exact(values, percent), rel=0.0101)
    assert (seen.count, seen.minimum, seen.maximum) == (6050, min(values), max(values))
    assert seen.sum == pytest.approx(sum(values))


@pytest.mark.parametrize(
    ("count", "percent", "found"),
    [(2, 90, 2), (2, 50, 1), (3, 50, 2), (10, 90, 9), (10, 95, 10), (1000, 99.9, 999), (1, 1, 1)],
)
def test_percentiles_of_few_values(count, percent, found):
    seen = of_values({float(value): 1 for value in range(1, count + 1)})
    assert seen.percentile(percent) == pytest.approx(found, rel=0.0101)


few = settings(max_examples=100, derandomize=True, database=None, deadline=None)
numbers = st.floats(-(2.0**360), 2.0**360) | st.sampled_from([0.0, -0.0, 5e-324, 1.0])


@few
@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 20), st.floats(0, 100))
def test_two_sets_together_are_as_one(values, cut, percent):
    one, first, second = Statistics(), Statistics(), Statistics()
    for value in values:
        one.add(value)
    for value in values[:cut]:
        first.add(value)
    for value in values[cut:]:
        second.add(value)
    first.merge(second)
    assert (first.count, first.minimum, first.maximum) == (one.count, one.minimum, one.maximum)
    assert first.buckets == one.buckets
    found = first.percentile(percent)
    assert first.minimum <= found <= first.maximum


def test_nothing_has_no_percentile():
    seen = Statistics()
    assert (seen.count, seen.sum, seen.percentile(50)) == (0, 0, None)


def test_a_counted_set_tells_nothing_of_how_it_lies():
    seen = of_set(10, 100, 5, 20)
    assert (seen.count, seen.sum, seen.minimum, seen.maximum) == (10, 100, 5, 20)
    assert seen.percentile(50) is None
    together = of_values({1.0: 1})
    together.merge(seen)
    together.add(3.0)
    assert (together.count, together.sum, together.percentile(50)) == (12, 104, None)
    assert of_set(10, 50, 5, 5).percentile(50) == 5


def test_a_copy_is_its_own():
    seen = of_values({1.0: 1})
    copy = seen.copy()
    seen.add(2.0)
    assert (copy.count, copy.buckets) == (1, of_values({1.0: 1}).buckets)


def test_sketches_of_gateways():
    buckets: dict[int, int] = {}
    add_to_buckets(buckets, [(100, 50), (2000, 49), (50_000, 1)])
    seen = of_latencies(Latencies(count=100, sum=153_000, buckets=buckets))
    assert (seen.count, seen.sum) == (100, 153_000)
    assert seen.minimum == pytest.approx(100, rel=0.01)
    assert seen.maximum == pytest.approx(50_000, rel=0.01)
    assert seen.percentile(90) == pytest.approx(2000, rel=0.01)
    assert of_latencies(Latencies()).count == 0


def test_the_number_of_buckets_is_bounded():
    seen = Statistics()
    for power in range(-340, 340):
        for digit in range(1, 10):
            other = Statistics()
            other.add(digit * 2.0**power)
            seen.merge(other)
    assert len(seen.buckets) <= MAX_BUCKETS
    assert sum(seen.buckets.values()) == seen.count == 680 * 9
    assert seen.percentile(99) == pytest.approx(
        exact([d * 2.0**p for p in range(-340, 340) for d in range(1, 10)], 99), rel=0.0101
    )
