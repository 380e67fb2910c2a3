"""How often a gateway does what: often while it has requests, once a second while it has none."""

import asyncio
from collections import Counter

import pytest

from sagehen.gateway.periodic_tasks import (
    BUSY_SECONDS,
    IDLE_SECONDS,
    STEP_SECONDS,
    PeriodicTask,
    PeriodicTasks,
)
from support.clock import SteppedClock

SLOW_SECONDS = 0.25


class World:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.busy = False
        self.done: Counter[str] = Counter()
        self.tasks = PeriodicTasks(
            self.clock,
            [
                PeriodicTask(STEP_SECONDS, self._do("fast")),
                PeriodicTask(SLOW_SECONDS, self._do("slow")),
            ],
            lambda: self.busy,
        )

    def _do(self, name):
        def do() -> None:
            self.done[name] += 1

        return do

    async def steps(self, seconds: float, count: int) -> None:
        """Let pass so many pauses, each of so many seconds."""
        for _ in range(count):
            await self.clock.sleeper(seconds)
            self.clock.advance(seconds)
            await asyncio.sleep(0)


@pytest.fixture
async def world():
    world = World()
    running = asyncio.create_task(world.tasks.run())
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_idle_gateway_wakes_once_a_second(world) -> None:
    await world.steps(IDLE_SECONDS, 5)
    await world.clock.sleeper(IDLE_SECONDS)
    assert world.done == {"fast": 5, "slow": 5}


async def test_each_duty_has_its_pace_while_there_are_requests(world) -> None:
    await world.clock.sleeper(IDLE_SECONDS)
    world.busy = True
    await world.steps(IDLE_SECONDS, 1)
    await world.clock.sleeper(STEP_SECONDS)
    world.done.clear()
    await world.steps(STEP_SECONDS, 20)
    await world.clock.sleeper(STEP_SECONDS)
    assert world.done == {"fast": 20, "slow": 20 * STEP_SECONDS / SLOW_SECONDS}


async def test_a_request_ends_the_pause_at_once(world) -> None:
    await world.clock.sleeper(IDLE_SECONDS)
    world.tasks.wake()
    await world.clock.sleeper(STEP_SECONDS)
    assert world.done == {"fast": 1, "slow": 1}


async def test_a_gateway_is_busy_for_a_while_after_its_last_request(world) -> None:
    await world.clock.sleeper(IDLE_SECONDS)
    world.tasks.wake()
    await world.steps(STEP_SECONDS, round(BUSY_SECONDS / STEP_SECONDS))
    await world.clock.sleeper(IDLE_SECONDS)


async def test_a_duty_that_fails_holds_up_no_other(world, caplog) -> None:
    def fail() -> None:
        raise ValueError("Not today.")

    world.tasks._tasks.insert(0, PeriodicTask(STEP_SECONDS, fail))
    await world.steps(IDLE_SECONDS, 2)
    await world.clock.sleeper(IDLE_SECONDS)
    assert world.done == {"fast": 2, "slow": 2}
    assert caplog.text.count("failed and is tried again") == 2
