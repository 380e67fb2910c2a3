"""How soon what is waited for is noticed, and how often it is looked at."""

import threading
from types import SimpleNamespace

import pytest

from sagehen.apply import perform as waiting
from sagehen.apply.perform import StackRun, poll, wait_until_gone
from sagehen.apply.resources.resource import ActualState
from sagehen.base.errors import Unavailable


class Passing(threading.Event):
    """Nobody waits in fact: the time is what has been waited."""

    now = 0.0

    def wait(self, timeout=None):
        self.now += timeout
        return self.is_set()


@pytest.fixture
def stop(monkeypatch):
    stop = Passing()
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: stop.now))
    return stop


def work(stop, timeout_seconds=3600):
    journal = SimpleNamespace(beat=lambda: None)
    return StackRun(None, journal, stop, lambda _: None, timeout_seconds)


@pytest.mark.parametrize(("ready_at", "late", "looks"), [
    (0, 0, 1), (0.05, 0.1, 3), (1.5, 0.2, 16), (10, 1.1, 40), (600, 2.1, 340),
])  # fmt: skip
def test_what_takes_longer_is_looked_at_less_often(stop, ready_at, late, looks):
    seen = []

    def look():
        seen.append(stop.now)

    poll(work(stop), look, lambda _: stop.now >= ready_at, "it is not ready")
    assert ready_at <= stop.now <= ready_at + late
    assert len(seen) <= looks


def test_it_is_given_up_in_time(stop):
    with pytest.raises(Unavailable, match="it is not ready after 30 s"):
        poll(work(stop, 30), lambda: None, lambda _: False, "it is not ready")
    assert 30 <= stop.now <= 32


class Fading:
    """A resource that has one status after the other, and then is gone."""

    def __init__(self, *statuses):
        self.left = list(statuses)
        self.kind = SimpleNamespace(look=self.look)
        self.type = self.logical_id = self.name = "it"
        self.properties = {}

    def look(self, *_):
        if not self.left:
            return None
        return ActualState(name="it", properties={}, status=self.left.pop(0))


def test_what_is_deleted_is_waited_for_until_it_is_gone(stop):
    it = Fading("ready", "going", "ready")
    wait_until_gone(it, work(stop))
    assert it.left == []


def test_what_is_not_going_is_no_reason_to_wait_before_it_is_created(stop):
    it = Fading("going", "going", "ready", "ready")
    wait_until_gone(it, work(stop), only_if_going=True)
    assert it.left == ["ready"]
