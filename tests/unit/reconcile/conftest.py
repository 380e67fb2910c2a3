"""A clock that tests advance, an agent in memory, and a state of its own for each test."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sagehen.domain.containers import InstanceReport, InstanceSpec, InstanceState
from sagehen.errors import Invalid, Unavailable
from sagehen.home import Home, prepare_home
from sagehen.store.database import Database
from support.fleet import report
from support.state import copied_state


class ManualClock:
    """Stands still until it is advanced; who sleeps wakes when it passes."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiting = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, waiting))
        await waiting

    def sleeps_until(self, time: float) -> bool:
        """Somebody sleeps until just then."""
        return any(until == time and not waiting.done() for until, waiting in self._sleepers)

    def advance(self, seconds: float) -> None:
        self.time += seconds
        for until, waiting in self._sleepers:
            if until <= self.time and not waiting.done():
                waiting.set_result(None)
        self._sleepers = [one for one in self._sleepers if not one[1].done()]


@dataclass(frozen=True)
class Reports:
    version: int
    instances: tuple[InstanceReport, ...]


@dataclass
class MemoryAgent:
    """Has the agent's methods; its instances do what the test says."""

    states: dict[str, InstanceState] = field(default_factory=dict)
    version: int = 1
    away: bool = False
    starts_at_once: bool = True
    refuses: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    before_answer: Callable[[str, str], None] = lambda verb, instance_id: None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def instances(self, since: int | None = None, wait_seconds: float = 0) -> Reports:
        self._check()
        while since == self.version and wait_seconds:
            self._changed.clear()
            await self._changed.wait()
            self._check()
        said = tuple(report(key, state) for key, state in self.states.items())
        return Reports(self.version, said)

    async def put_instance(self, spec: InstanceSpec) -> None:
        self._take("put", spec.instance_id)
        if self.refuses:
            raise Invalid("No such thing as a refused instance.")
        if self.states.get(spec.instance_id) in (None, InstanceState.FAILED):
            serves = self.starts_at_once
            state = InstanceState.IN_SERVICE if serves else InstanceState.STARTING
            self.set(spec.instance_id, state)

    async def delete_instance(self, instance_id: str) -> None:
        self._take("delete", instance_id)
        if self.states.pop(instance_id, None) is not None:
            self.change()

    def set(self, instance_id: str, state: InstanceState) -> None:
        self.states[instance_id] = state
        self.change()

    def change(self) -> None:
        self.version += 1
        self._changed.set()

    def leave(self) -> None:
        """Die, with all instances."""
        self.away = True
        self.states.clear()
        self.change()

    def _take(self, verb: str, instance_id: str) -> None:
        self._check()
        self.asked.append((verb, instance_id))
        self.before_answer(verb, instance_id)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("The agent is away.")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def agent() -> MemoryAgent:
    return MemoryAgent()


@pytest.fixture
def database(empty_state: Path, home: Home) -> Iterator[Database]:
    with copied_state(empty_state, home.path / "state.db") as database:
        yield database


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")
