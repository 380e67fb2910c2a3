"""A stop, and how long the containers may take for it."""

import asyncio

import pytest

from sagehen.agent.jobs.stop_request import StopState
from sagehen.frame.job_specs import JobOutcome, StopRequest
from support.clock import SteppedClock

INTERRUPTED = StopRequest(outcome=JobOutcome.INTERRUPTED, grace_seconds=10)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def stop(clock: SteppedClock) -> StopState:
    return StopState(clock, grace_seconds=60)


async def test_the_first_request_has_the_outcome(stop: StopState) -> None:
    waiting = asyncio.create_task(stop.wait())
    stop.request_stop(StopRequest())
    stop.request_stop(INTERRUPTED)
    await waiting
    assert stop.outcome is JobOutcome.STOPPED
    assert stop.grace_left() == 10, "later requests only shorten the grace"


def test_the_grace_is_never_extended(stop: StopState, clock: SteppedClock) -> None:
    assert stop.limit_grace(10) == 10
    clock.advance(4)
    assert stop.limit_grace() == 10
    assert stop.grace_left() == 6
    assert stop.limit_grace(-5) == 4


def test_the_default_grace_counts_from_the_first_look(stop: StopState, clock: SteppedClock) -> None:
    clock.advance(100)
    assert stop.grace_left() == 60
    clock.advance(25)
    assert stop.grace_left() == 35


async def test_the_wait_ends_with_a_container_a_shorter_grace_or_the_grace(
    stop: StopState, clock: SteppedClock
) -> None:
    container = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(container)
    waiting = asyncio.create_task(stop.wait_or([task]))  # type: ignore[list-item]
    await clock.sleeper(60)
    stop.limit_grace(30)
    await waiting
    waiting = asyncio.create_task(stop.wait_or([task]))  # type: ignore[list-item]
    await clock.sleeper(30)
    clock.advance(30)
    await waiting
    assert stop.grace_left() == 0
    container.set_result(0)
    await stop.wait_or([task])  # type: ignore[list-item]
