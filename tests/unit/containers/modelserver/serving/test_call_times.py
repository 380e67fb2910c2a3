import random

import pytest

from sagehen.containers.modelserver.serving.batch_limits import (
    CALLS_NEEDED,
    MAX_READY,
    CallTimes,
)


def after(*seconds):
    times = CallTimes()
    for one in seconds:
        times.record(one)
    return times


@pytest.mark.parametrize(
    ("seconds", "ready"), [(0.0001, MAX_READY), (0.001, 4), (0.002, 2), (0.003, 1), (1.0, 1)]
)
def test_quick_calls_have_more_at_hand(seconds, ready):
    assert after(*[seconds] * 2000).ready == ready


def test_a_few_calls_say_nothing():
    assert after(*[0.0001] * (CALLS_NEEDED - 1)).ready == 1


def test_some_slow_calls_among_many_quick_ones_count():
    rng = random.Random(1)
    mixed = [1.0 if rng.random() < 0.05 else 0.0001 for _ in range(5000)]
    assert after(*mixed).ready == 1


def test_what_has_become_slow_is_noticed_within_some_calls():
    times = after(*[0.0001] * 2000)
    for _ in range(10):
        times.record(0.1)
    assert times.ready == 1


def test_it_follows_the_ninety_ninth_percentile():
    rng = random.Random(2)
    times = after(*[rng.random() for _ in range(20_000)])
    assert 0.9 < times._seconds < 2.0
