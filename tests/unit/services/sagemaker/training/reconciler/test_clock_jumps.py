"""A clock that is set while jobs wait."""

import pytest

from sagehen.base.clock import ClockJump, ClockJumps
from support.clock import SteppedClock
from support.training_jobs import BEGAN, running_job, spot, waiting_job


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_jump_is_seen_once(seconds):
    clock = SteppedClock(BEGAN)
    jumps = ClockJumps(clock)
    clock.advance(10)
    assert jumps.look() is None
    clock.advance(0.25)
    clock.jump(seconds)
    clock.advance(0.25)
    now = BEGAN + 10.5 + seconds
    assert jumps.look() == ClockJump(seconds=seconds, since=now - 0.5, now=now)
    assert jumps.look() is None


def test_what_is_adjusted_is_no_jump():
    clock = SteppedClock(BEGAN)
    jumps = ClockJumps(clock)
    clock.jump(1.5)
    assert jumps.look() is None


@pytest.mark.parametrize("seconds", [5000.0, -900.0])
def test_nobody_waits_longer_or_shorter_for_it(passes, seconds):
    passes.insert(
        waiting_job("waits", **spot()),
        running_job("runs", **spot()),
        waiting_job("ever"),
        waiting_job("stops", gives_up_at=0.0),
        waiting_job("new", created_at=BEGAN + 99.5 + seconds, gives_up_at=BEGAN + 300 + seconds),
    )
    now = BEGAN + 100 + seconds
    passes._pass.shift_clock(ClockJump(seconds=seconds, since=now - 1, now=now))
    assert passes.get("waits").gives_up_at == BEGAN + 200 + seconds
    assert passes.get("waits").wait_ends_at == passes.get("runs").wait_ends_at
    assert passes.get("ever").gives_up_at is None
    assert passes.get("stops").gives_up_at == 0.0
    assert passes.get("new").gives_up_at == BEGAN + 300 + seconds
    passes.take(away=True, now=now)
    assert passes.secondary("waits", "runs") == ["Starting", "Starting"]
    passes.take(away=True, now=now + 100)
    assert passes.secondary("waits", "runs") == ["MaxWaitTimeExceeded", "Stopping"]
