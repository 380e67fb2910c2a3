"""Keeping what the agent says, through its absences."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.state_watch import StateWatch

IN_SERVICE, FAILED = InstanceState.IN_SERVICE, InstanceState.FAILED


class Watched:
    def __init__(self, agent, clock) -> None:
        self.agent, self.clock = agent, clock
        self.changes: asyncio.Queue[dict[str, InstanceState] | None] = asyncio.Queue()
        self.watch = StateWatch(
            agent.instances,
            lambda answer: {report.instance_id: report for report in answer.instances},
            clock,
            self._note,
        )

    def _note(self) -> None:
        reports = self.watch.reports
        said = None if reports is None else {key: one.state for key, one in reports.items()}
        self.changes.put_nowait(said)

    async def next(self) -> dict[str, InstanceState] | None:
        return await asyncio.wait_for(self.changes.get(), 120)


@pytest.fixture
async def watched(agent, clock) -> AsyncIterator[Watched]:
    watched = Watched(agent, clock)
    task = asyncio.create_task(watched.watch.run())
    yield watched
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_each_change_is_told(watched) -> None:
    assert await watched.next() == {}
    watched.agent.set("i1", IN_SERVICE)
    assert await watched.next() == {"i1": IN_SERVICE}
    watched.agent.set("i1", FAILED)
    assert await watched.next() == {"i1": FAILED}


async def test_nothing_is_known_while_the_agent_is_away(watched) -> None:
    assert await watched.next() == {}
    watched.agent.set("i1", IN_SERVICE)
    assert await watched.next() == {"i1": IN_SERVICE}
    watched.agent.leave()
    assert await watched.next() is None
    assert watched.changes.empty()


async def test_an_agent_that_is_back_is_asked_from_the_start(watched) -> None:
    assert await watched.next() == {}
    version = watched.agent.version
    watched.agent.leave()
    assert await watched.next() is None
    watched.agent.away = False
    watched.agent.version = version  # by chance the same: still another agent's
    watched.clock.advance(1.0)
    assert await watched.next() == {}


async def test_an_answer_that_makes_no_sense_is_told_and_gone_past(watched, caplog) -> None:
    assert await watched.next() == {}
    sound, watched.agent.states = watched.agent.states, None
    watched.agent.change()
    assert await watched.next() is None
    assert "Watching the agent failed" in caplog.text
    watched.agent.states = sound
    watched.clock.advance(1.0)
    assert await watched.next() == {}
