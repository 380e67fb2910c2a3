"""The stores of a home: built where they are missing, removed where nobody needs them."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sagehen.frame.offline_results.store import ResultStore, copy_mark, write_store
from sagehen.services.sagemaker.offline_results.building import BuildReport
from sagehen.services.sagemaker.offline_results.builds import BUILDS_AT_ONCE, StoreBuilds
from sagehen.services.sagemaker.offline_results.stores import NO_STORES, StoreRequest
from support.offline_results import RESULTS, MemoryBuilds


class House:
    def __init__(self, folder, clock) -> None:
        self.folder, self.clock = folder, clock
        self.memory = MemoryBuilds(folder)
        self.changes = 0
        self.open()

    def open(self) -> StoreBuilds:
        """As a control that has just started."""
        self.builds = StoreBuilds(self.folder, self.memory.build, self.clock)
        self.builds.on_change = self._changed
        return self.builds

    def _changed(self) -> None:
        self.changes += 1

    def require(self, *files: str, routed=None) -> None:
        requests = [StoreRequest(file=file, results=RESULTS) for file in files]
        self.builds.require(requests, self.builds.states if routed is None else routed)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def ready(self) -> set[str]:
        return set(self.builds.states.ready)

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.builds.run())
        await asyncio.sleep(0)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def house(home, clock) -> House:
    return House(home.offline_results, clock)


async def test_what_is_missing_is_built_once(house) -> None:
    house.require("d.a.0.db", "d.b.0.db")
    house.require("d.a.0.db", "d.b.0.db")
    assert house.builds.is_building("d.a.0.db")
    await house.settle()
    house.require("d.a.0.db", "d.b.0.db")
    await house.settle()
    assert [request.file for request in house.memory.requests] == ["d.a.0.db", "d.b.0.db"]
    assert house.ready == house.files == {"d.a.0.db", "d.b.0.db"}
    assert (house.changes, house.builds.is_building("d.a.0.db")) == (2, False)
    assert house.builds.size("d.a.0.db") == (house.folder / "d.a.0.db").stat().st_size
    assert house.builds.size("other.db") == 0


async def test_what_nobody_needs_is_removed(house) -> None:
    house.require("d.a.0.db", "e.a.0.db")
    await house.settle()
    house.require("e.a.0.db")
    assert house.ready == house.files == {"e.a.0.db"}


async def test_the_old_store_stays_until_the_routes_know_the_new_one(house) -> None:
    house.require("d.a.0.db")
    await house.settle()
    house.memory.gate.clear()
    house.require("d.a.1.db")
    await house.settle()
    assert house.ready == {"d.a.0.db"}
    routed = house.builds.states
    house.memory.gate.set()
    await house.settle()
    house.require("d.a.1.db", routed=routed)
    assert house.ready == {"d.a.0.db", "d.a.1.db"}
    house.require("d.a.1.db")
    assert house.ready == house.files == {"d.a.1.db"}
    assert house.memory.requests[1].existing == ("d.a.0.db",)


async def test_a_build_that_nobody_needs_any_more_is_ended(house) -> None:
    house.memory.gate.clear()
    house.require("d.a.0.db")
    await house.settle()
    house.require()
    await house.settle()
    assert (house.memory.cancelled, house.builds.is_building("d.a.0.db")) == (1, False)
    house.memory.gate.set()
    house.require("d.a.0.db")
    await house.settle()
    assert house.ready == {"d.a.0.db"}


async def test_a_final_failure_is_not_tried_again(house) -> None:
    house.memory.reports = [BuildReport(failure="row 3 is broken.", is_final=True)]
    house.require("d.a.0.db")
    await house.settle()
    assert house.builds.states.failures == {"d.a.0.db": "row 3 is broken."}
    house.clock.advance(1000)
    house.require("d.a.0.db")
    await house.settle()
    assert len(house.memory.requests) == 1
    house.require("d.a.1.db")
    await house.settle()
    assert (house.ready, house.builds.states.failures) == ({"d.a.1.db"}, {})


async def test_other_failures_are_tried_again_and_told_after_some(house) -> None:
    house.memory.reports = [BuildReport(failure=f"away {number}") for number in range(6)]
    house.require("d.a.0.db")
    for attempts in range(1, 7):
        await house.settle()
        assert len(house.memory.requests) == attempts
        told = {} if attempts < 5 else {"d.a.0.db": "away 4"}
        assert house.builds.states.failures == told
        house.clock.advance(60)
    await house.settle()
    assert (house.ready, house.builds.states.failures) == ({"d.a.0.db"}, {})


async def test_few_are_built_at_once(house) -> None:
    house.memory.gate.clear()
    house.require(*(f"d.{name}.0.db" for name in "abcd"))
    await house.settle()
    assert len(house.memory.requests) == BUILDS_AT_ONCE
    house.memory.gate.set()
    await house.settle()
    assert len(house.ready) == 4


async def test_builds_end_with_control(house) -> None:
    house.memory.gate.clear()
    async with house.running():
        house.require("d.a.0.db", "d.b.0.db", "d.c.0.db")
        await house.settle()
    assert house.memory.cancelled == BUILDS_AT_ONCE
    await house.settle()
    assert not house.builds.is_building("d.a.0.db")


async def test_a_control_that_starts_finds_what_is_whole_and_removes_the_rest(house) -> None:
    write_store(house.folder / "d.a.0.db", [(b"7", b"1")], "f", 5.0)
    (house.folder / "d.c.0.db.new").write_bytes(b"half")
    (house.folder / "d.c.0.db.rows").write_bytes(b"half")
    house.open()
    assert house.ready == house.files == {"d.a.0.db"}
    house.require("d.a.0.db")
    await house.settle()
    assert house.memory.requests == []
    assert ResultStore(house.folder / "d.a.0.db").get(b"7") == b"1"


async def test_a_store_that_cannot_be_read_stays_until_it_is_replaced_or_not_needed(house) -> None:
    write_store(house.folder / "d.a.0.db", [(b"7", b"1")], "f", 5.0)
    whole = (house.folder / "d.a.0.db").read_bytes()
    (house.folder / "d.a.0.db").write_bytes(whole[:5000])
    (house.folder / "d.b.0.db").write_bytes(b"of another format")
    house.open()
    assert (house.ready, house.files) == (set(), {"d.a.0.db", "d.b.0.db"})
    house.memory.reports = [BuildReport(failure="Its objects are gone.", is_final=True)]
    house.require("d.a.0.db")
    await house.settle()
    assert (house.ready, house.files) == (set(), {"d.a.0.db"})
    house.require("d.a.1.db")
    assert house.files == {"d.a.0.db"}, "the newer revision is not there yet"
    await house.settle()
    # The disk works again.
    (house.folder / "d.a.0.db").write_bytes(whole)
    house.open()
    assert house.ready == {"d.a.0.db", "d.a.1.db"}


async def test_a_new_build_replaces_a_store_that_cannot_be_read(house) -> None:
    (house.folder / "d.a.0.db").write_bytes(b"cut off")
    house.open()
    house.require("d.a.0.db")
    await house.settle()
    assert house.ready == house.files == {"d.a.0.db"}
    house.require("d.a.0.db")
    assert ResultStore(house.folder / "d.a.0.db").get(b"7") == b"d.a.0.db"


async def test_states_are_a_copy(house) -> None:
    states = house.builds.states
    house.require("d.a.0.db")
    await house.settle()
    assert (states, states.ready) == (NO_STORES, {})


async def test_a_store_that_another_leader_has_built_is_not_built_again(house) -> None:
    """The node's agent has copied it since this control has started."""
    write_store(house.folder / "d.a.0.db", [(b"7", b"x")], "print", 5.0)
    copy_mark(house.folder / "d.a.0.db").touch()
    house.require("d.a.0.db")
    await house.settle()
    assert house.memory.requests == []
    assert house.ready == house.files == {"d.a.0.db"}, "and it is no copy any more"
