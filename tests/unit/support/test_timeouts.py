"""The thread that ends a run whose test hangs."""

import queue

import pytest
from pytest_timeout import Settings

from support import timeouts
from support.clock import HandClock
from support.timeouts import TimeoutThread


@pytest.fixture
def clock(monkeypatch):
    clock = HandClock()
    monkeypatch.setattr(timeouts, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def ended(monkeypatch):
    """The tests that took too long."""
    found = queue.SimpleQueue()
    monkeypatch.setattr(timeouts, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(timeouts, "timeout_timer", lambda item, settings: found.put(item))
    return found


@pytest.fixture
def timer(clock, ended):
    timer = TimeoutThread()
    yield timer
    timer.pytest_unconfigure()


def settings(timeout, method="thread"):
    return Settings(timeout, method, False, False)


def test_only_a_test_that_has_not_ended_in_its_time_ends_the_run(timer, clock, ended):
    assert timer.pytest_timeout_set_timer("ends", settings(10))
    timer.pytest_timeout_cancel_timer()
    clock.seconds = 9.0
    assert timer.pytest_timeout_set_timer("hangs", settings(10))
    clock.seconds = 18.9
    with pytest.raises(queue.Empty):
        ended.get(timeout=0.01)
    clock.seconds = 19.0
    assert ended.get(timeout=120) == "hangs"


def test_another_method_is_left_to_pytest_timeout(timer):
    assert timer.pytest_timeout_set_timer("any", settings(1, "signal")) is None
