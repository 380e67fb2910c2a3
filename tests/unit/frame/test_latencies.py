"""Sketches of times: their error, and that they add up."""

import random

import msgspec
import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from sagehen.frame.statistics import (
    MAX_LATENCY_BUCKETS,
    RELATIVE_ERROR,
    Latencies,
    add_to_buckets,
)

TIMES = st.lists(st.integers(0, 60_000_000), max_size=200)


def sketch(times: list[int]) -> Latencies:
    buckets: dict[int, int] = {}
    add_to_buckets(buckets, ((time, 1) for time in times))
    return Latencies(count=len(times), sum=sum(times), buckets=buckets)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_are_within_the_error(share: float) -> None:
    draw = random.Random(3)
    times = [round(draw.lognormvariate(8, 1)) for _ in range(5000)]

    told = sketch(times).quantile(share)

    exact = sorted(times)[int(share * (len(times) - 1))]
    assert told == pytest.approx(exact, rel=RELATIVE_ERROR)


@given(TIMES, TIMES)
def test_two_sketches_added_are_the_sketch_of_both(some: list[int], more: list[int]) -> None:
    assert sketch(some) + sketch(more) == sketch(some + more)


@given(st.lists(st.integers(1, 60_000_000), min_size=1, max_size=200), st.floats(0, 1))
def test_percentiles_are_those_of_ddsketch(times: list[int], share: float) -> None:
    theirs = DDSketch(RELATIVE_ERROR)
    for time in times:
        theirs.add(time)

    assert sketch(times).quantile(share) == theirs.get_quantile_value(share)


@given(TIMES, TIMES)
def test_a_sketch_comes_before_itself_with_more(some: list[int], more: list[int]) -> None:
    assert sketch(some) <= sketch(some + more)


def test_a_sketch_does_not_come_before_one_of_other_times() -> None:
    assert not sketch([10, 10_000]) <= sketch([20_000, 20_000, 20_000])


def test_nothing_has_no_percentile() -> None:
    assert Latencies().quantile(0.5) is None


@pytest.mark.parametrize("time", [-5, 0, 10**30])
def test_any_time_has_a_bucket(time: int) -> None:
    (bucket,) = sketch([time]).buckets

    assert 0 <= bucket <= MAX_LATENCY_BUCKETS


def test_a_sketch_travels_as_json() -> None:
    one = sketch([5, 700, 700])

    assert msgspec.json.decode(msgspec.json.encode(one), type=Latencies) == one
