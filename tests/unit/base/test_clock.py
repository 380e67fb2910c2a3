"""Jumps of the wall clock, seen against the monotonic one."""

from dataclasses import dataclass

import pytest

from sagehen.base.clock import MIN_JUMP_SECONDS, ClockJump, ClockJumps


@dataclass
class TwoClocks:
    wall: float = 1000.0
    monotonic_seconds: float = 50.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.monotonic_seconds

    async def sleep(self, seconds: float) -> None: ...

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic_seconds += seconds


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_jump_is_reported_once(jump: float) -> None:
    clocks = TwoClocks()
    jumps = ClockJumps(clocks)
    clocks.pass_(10)
    clocks.wall += jump
    assert jumps.look() == ClockJump(seconds=jump, since=1000 + jump, now=1010 + jump)
    clocks.pass_(10)
    assert jumps.look() is None


def test_small_adjustments_are_no_jump() -> None:
    clocks = TwoClocks()
    jumps = ClockJumps(clocks)
    clocks.wall += MIN_JUMP_SECONDS / 2
    assert jumps.look() is None
