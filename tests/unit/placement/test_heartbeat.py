"""When a node is lost."""

import asyncio

import pytest

from sagehen.base.errors import NobodyListens, Unavailable
from sagehen.frame.nodes import LeaseAnswer
from sagehen.placement.heartbeat import FENCED_SECONDS, LEASE_SECONDS, LOST_SECONDS, Heartbeat
from support.clock import SteppedClock


class Agent:
    def __init__(self, clock):
        self.clock = clock
        self.answers = True
        self.hangs = False
        self.has_ended = False
        self.requests = []

    async def renew(self, request, timeout_seconds):
        self.requests.append(request)
        if self.has_ended:
            raise NobodyListens("ended")
        if self.hangs:
            await self.clock.sleep(timeout_seconds)
        if self.hangs or not self.answers:
            raise Unavailable("away")
        return LeaseAnswer(run_id="r", answered_at=100 + self.clock.monotonic())


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def agent(clock):
    return Agent(clock)


@pytest.fixture
async def beat(agent, clock):
    """The heartbeat, which runs."""
    heartbeat = Heartbeat("one", agent.renew, clock, lambda: None)
    task = asyncio.create_task(heartbeat.run())
    yield heartbeat
    task.cancel()


async def pass_time(clock, seconds):
    for _ in range(round(seconds * 10)):
        await settle()
        clock.advance(0.1)
    await settle()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_beat_tells_what_control_has_heard(beat, agent, clock):
    await pass_time(clock, 2.5)
    assert [each.answered_at for each in agent.requests] == [
        None,
        100.0,
        pytest.approx(101, abs=0.2),
    ]
    assert [each.run_id for each in agent.requests] == ["", "r", "r"]
    assert {each.seconds for each in agent.requests} == {LEASE_SECONDS}
    assert beat.is_alive


@pytest.mark.parametrize("fault", ["refuses", "hangs"])
async def test_a_silent_node_is_lost_within_five_seconds_and_fenced_later(
    beat, agent, clock, fault
):
    await pass_time(clock, 3.5)
    since = clock.monotonic()
    agent.answers, agent.hangs = fault != "refuses", fault == "hangs"
    await pass_time(clock, 2.5)
    assert beat.is_alive
    await pass_time(clock, 2.4)
    assert beat.is_lost
    assert not beat.is_fenced
    assert clock.monotonic() - since < 5
    await pass_time(clock, FENCED_SECONDS - 4.5)
    assert beat.is_fenced
    assert not beat.has_ended, "it may be cut off, or hang"
    agent.answers, agent.hangs = True, False
    await pass_time(clock, 3)
    assert beat.is_alive
    assert not beat.is_fenced


async def test_a_node_at_which_nobody_listens_is_lost_after_a_second(beat, agent, clock):
    await pass_time(clock, 3.5)
    agent.has_ended = True
    since = clock.monotonic()
    while not beat.is_lost:
        await pass_time(clock, 0.1)
    assert 1 <= clock.monotonic() - since <= 2.2
    await pass_time(clock, FENCED_SECONDS - 3)
    assert not beat.is_fenced, "its jobs may have outlived it"
    assert not beat.has_ended
    await pass_time(clock, 3)
    assert beat.has_ended
    agent.has_ended = False
    await pass_time(clock, 1.5)
    assert beat.is_alive


async def test_a_node_that_is_back_within_a_second_is_not_lost(beat, agent, clock):
    await pass_time(clock, 3.5)
    for _ in range(3):
        agent.has_ended = True
        await pass_time(clock, 1)
        agent.has_ended = False
        await pass_time(clock, 2)
        assert beat.is_alive


async def test_a_node_that_never_answers_is_lost_and_fenced_too(agent, clock):
    agent.answers = False
    heartbeat = Heartbeat("one", agent.renew, clock, lambda: None)
    task = asyncio.create_task(heartbeat.run())
    await pass_time(clock, 3.5)
    assert not heartbeat.is_lost
    await pass_time(clock, 1)
    assert heartbeat.is_lost
    assert not heartbeat.is_alive
    await pass_time(clock, 5)
    assert heartbeat.is_fenced
    task.cancel()


def test_a_lease_that_control_has_waited_for_is_over():
    """The agent's lease counts from its last answer that control has heard, at the latest when
    control's silence begins."""
    assert LEASE_SECONDS < FENCED_SECONDS


async def test_a_node_of_a_version_that_control_does_not_understand_is_lost(clock, caplog):
    def answer(versions):
        return LeaseAnswer(run_id="r", answered_at=clock.monotonic(), versions=versions)

    spoken = [(1,)]

    async def renew(request, timeout_seconds):
        return answer(spoken[0])

    heartbeat = Heartbeat("one", renew, clock, lambda: None)
    task = asyncio.create_task(heartbeat.run())
    await pass_time(clock, 2)
    assert heartbeat.is_alive
    spoken[0] = (7, 8)
    await pass_time(clock, LOST_SECONDS + 2)
    assert heartbeat.is_lost
    assert "speaks the versions [7, 8] of the agent's API" in heartbeat.refusal
    assert sum("cannot be used" in line for line in caplog.messages) == 1
    spoken[0] = (1, 7)
    await pass_time(clock, 2)
    assert heartbeat.is_alive
    assert heartbeat.refusal == ""
    task.cancel()


async def test_an_error_while_a_change_is_taken_in_does_not_end_the_heartbeat(agent, clock, caplog):
    taken_in, faults = [], 2

    def take_in():
        nonlocal faults
        if faults:
            faults -= 1
            raise RuntimeError("no room for another node")
        taken_in.append((heartbeat.is_alive, heartbeat.is_lost))

    heartbeat = Heartbeat("one", agent.renew, clock, take_in)
    task = asyncio.create_task(heartbeat.run())
    await pass_time(clock, 3.5)
    assert len(agent.requests) == 4
    assert taken_in == [(True, False)]
    assert [each.getMessage() for each in caplog.records] == [
        "A change of a node could not be taken in."
    ] * 2

    faults, agent.answers = 1, False
    await pass_time(clock, LOST_SECONDS + 2)
    assert taken_in == [(True, False), (False, True)]
    task.cancel()
