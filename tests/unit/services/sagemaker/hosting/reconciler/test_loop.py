"""The loop with a real state and an agent in memory: what it does, and that nothing is lost."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
import pytest
from sqlalchemy import Connection

from sagehen.base.home import prepare_home
from sagehen.frame import tags
from sagehen.frame.container_specs import InstanceOwner, InstanceState
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS
from sagehen.frame.routes import RouteTable
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.reconciler.loop import (
    LEASE_NAME,
    EndpointLoop,
    new_instance_id,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import routed_ids
from sagehen.services.sagemaker.hosting.records import EndpointRecord, EndpointStatus
from sagehen.services.sagemaker.offline_results.builds import StoreBuilds
from sagehen.state import leases
from sagehen.state.database import Database
from sagehen.state.leases import LEASE_SECONDS
from support.fleet import NAME, deployment, endpoint
from support.offline_results import MemoryBuilds, with_results

D1, D2 = deployment("d1", 2), deployment("d2", 1)
CREATING = endpoint(EndpointStatus.CREATING, target=D1)


class Control:
    """One loop, and short words for what tests do with it."""

    def __init__(self, database, agent, home, clock, holder="one") -> None:
        self.database, self.agent, self.home, self.clock = database, agent, home, clock
        self.store_builds = MemoryBuilds(home.offline_results)
        self.builds = StoreBuilds(home.offline_results, self.store_builds.build, clock)
        self.loop = EndpointLoop(
            database, agent, self.builds, home, clock, holder, random.Random(holder)
        )
        self.builds.on_change = self.loop.hint
        self.passes = 0
        """That have ended."""
        self._run_pass = self.loop._pass.run
        self.loop._pass.run = self._counted

    def _counted(self, *given):
        try:
            return self._run_pass(*given)
        finally:
            self.passes += 1

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def write(self, record: EndpointRecord) -> None:
        """What an operation does: a row, then a hint."""
        with self.database.write() as connection:
            if not endpoints.update(connection, record):
                endpoints.insert(connection, record)
        self.loop.hint()

    def record(self) -> EndpointRecord | None:
        with self.database.read() as connection:
            return endpoints.get(connection, NAME)

    def status(self) -> EndpointStatus | None:
        record = self.record()
        return record.status if record else None

    def rows(self) -> set[str]:
        with self.database.read() as connection:
            return {one.instance_id for one in instances.all(connection)}

    def routed(self) -> set[str]:
        if not self.home.routes.exists():
            return set()
        table = msgspec.json.decode(self.home.routes.read_bytes(), type=RouteTable)
        return routed_ids(table.routes)

    def at_rest(self, count: int) -> bool:
        """In service with so many instances, and no others anywhere; time goes on meanwhile."""
        self.clock.advance(0.01)
        serves = self.status() is EndpointStatus.IN_SERVICE
        rows = self.rows()
        return serves and len(rows) == count and rows == self.routed() == set(self.agent.states)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop work, without any time passing, until it is so."""
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def slept(self, seconds: float) -> None:
        """Until the loop sleeps for so long, and does nothing else."""
        await self.until(lambda: self.clock.sleeps_until(self.clock.time + seconds))

    async def in_time(self, condition: Callable[[], bool]) -> None:
        """The same, while seconds pass: the loop may begin to wait for one only after it is seen
        that it will have to."""

        def holds() -> bool:
            self.clock.advance(1.0)
            return condition()

        await self.until(holds)

    async def in_service(self, *, count: int = 2) -> None:
        await self.until(lambda: self.status() is EndpointStatus.IN_SERVICE)
        await self.until(lambda: len(self.routed()) == count)


@pytest.fixture
def control(database, agent, home, clock) -> Control:
    return Control(database, agent, home, clock)


async def test_created_to_in_service_without_any_time_passing(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()

    record = control.record()
    assert (record.current, record.target) == (D1, None)
    assert control.routed() == control.rows() == set(control.agent.states)


async def test_a_hint_may_come_from_any_thread_and_at_any_time(control) -> None:
    control.loop.hint()
    async with control.running():
        await control.until(lambda: control.home.routes.exists())
        await asyncio.to_thread(control.write, CREATING)
        await control.in_service()
    control.loop.hint()
    assert control.routed() == control.rows() == set(control.agent.states)


async def test_a_missed_hint_is_made_up_for_by_time(control) -> None:
    async with control.running():
        await control.until(lambda: control.home.routes.exists())
        with control.database.write() as connection:
            endpoints.insert(connection, CREATING)
        await control.until(lambda: control.at_rest(2))
    assert control.record().current == D1


async def test_time_alone_has_nothing_looked_at_once_all_is_settled(
    database, agent, home, clock
) -> None:
    # As control opens it: a lease that is renewed is a commit, too.
    state = Database(str(database.engine.url), locks_leases=True)
    control = Control(state, agent, home, clock)
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        await control.in_time(lambda: control.loop._idle.is_idle)
        settled = control.passes
        for _ in range(20):
            await control.slept(1.0)
            control.clock.advance(1.0)
        await control.slept(1.0)
        assert control.passes == settled
        with control.database.write() as connection:
            tags.put(connection, CREATING.arn, {"a": "commit of somebody's"})
        control.clock.advance(1.0)
        await control.until(lambda: control.passes == settled + 1)
    state.close()


async def test_a_failed_instance_fails_the_creation_and_leaves_nothing(control) -> None:
    control.agent.starts_at_once = False
    async with control.running():
        control.write(CREATING)
        await control.until(lambda: len(control.agent.states) == 2)
        first = min(control.agent.states)
        control.agent.set(first, InstanceState.FAILED)
        await control.until(lambda: control.status() is EndpointStatus.FAILED)
        await control.until(lambda: not control.agent.states and not control.rows())

    assert control.record().failure_reason == f"{first} broke."


async def test_a_refused_instance_fails_the_creation(control) -> None:
    control.agent.refuses = True
    async with control.running():
        control.write(CREATING)
        await control.until(lambda: control.status() is EndpointStatus.FAILED)
        await control.until(lambda: not control.rows())

    assert control.record().failure_reason == "No such thing as a refused instance."


async def test_an_update_keeps_the_old_ones_until_gateways_let_go(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        old = control.rows()
        control.write(
            msgspec.structs.replace(control.record(), status=EndpointStatus.UPDATING, target=D2)
        )
        await control.until(lambda: control.routed().isdisjoint(old) and control.routed() != set())
        assert old <= set(control.agent.states)
        await control.in_time(
            lambda: control.rows() == set(control.agent.states) == control.routed()
        )

    assert control.record().current == D2
    assert control.rows().isdisjoint(old)


async def test_a_deleted_endpoint_leaves_no_row_and_no_tag(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        with control.database.write() as connection:
            tags.put(connection, CREATING.arn, {"team": "houses"})
        control.write(msgspec.structs.replace(control.record(), status=EndpointStatus.DELETING))
        await control.until(lambda: not control.routed())
        await control.in_time(lambda: control.status() is None)

    assert (control.rows(), control.agent.states) == (set(), {})
    with control.database.read() as connection:
        assert tags.get(connection, CREATING.arn) == {}


async def test_an_agent_that_is_away_changes_no_routes(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        before = control.routed()
        control.agent.leave()
        await control.until(lambda: control.loop._instances.reports is None)
        for _ in range(2):  # The first may have begun before the agent was away.
            seen = control.passes
            control.write(control.record())
            await control.until(lambda seen=seen: control.passes > seen)

        assert control.routed() == before
        assert control.status() is EndpointStatus.IN_SERVICE


async def test_a_restarted_agent_is_given_its_instances_again(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        before = control.routed()
        control.agent.leave()
        await control.until(lambda: control.loop._instances.reports is None)
        control.agent.starts_at_once = False
        control.agent.away = False
        await control.in_time(lambda: control.routed() == set())
        assert control.status() is EndpointStatus.IN_SERVICE
        await control.until(lambda: set(control.agent.states) == before)
        for one in before:
            control.agent.set(one, InstanceState.IN_SERVICE)
        await control.until(lambda: control.routed() == before)


async def test_a_failed_instance_in_service_is_asked_for_again_later(control) -> None:
    async with control.running():
        control.write(CREATING)
        await control.in_service()
        broken = min(control.routed())
        control.agent.set(broken, InstanceState.FAILED)
        await control.until(lambda: broken not in control.routed())
        assert control.status() is EndpointStatus.IN_SERVICE
        await control.in_time(lambda: broken in control.routed())

    assert control.agent.asked.count(("put", broken)) == 2


async def test_instances_that_no_row_speaks_of_are_stopped(control) -> None:
    control.agent.states["i-stray"] = InstanceState.IN_SERVICE
    async with control.running():
        await control.until(lambda: not control.agent.states)
    assert set(control.agent.asked) == {("delete", "i-stray")}


async def test_instances_of_transform_jobs_are_left_alone(control) -> None:
    control.agent.states |= dict.fromkeys(("i-batch", "i-stray"), InstanceState.IN_SERVICE)
    control.agent.owners["i-batch"] = InstanceOwner.TRANSFORM_JOB
    async with control.running():
        await control.until(lambda: "i-stray" not in control.agent.states)
    assert set(control.agent.asked) == {("delete", "i-stray")}


async def test_a_change_made_while_the_step_is_planned_is_not_lost(control) -> None:
    """The endpoint is deleted after the pass has read the rows and before it writes."""
    control.write(CREATING)
    read = control.loop._pass._read
    once = iter([True])

    def read_then_delete():
        rows = read()
        if next(once, False):
            deleting = msgspec.structs.replace(CREATING, status=EndpointStatus.DELETING)
            control.write(deleting)
        return rows

    control.loop._pass._read = read_then_delete
    async with control.running():
        await control.until(lambda: control.status() is None)
        await control.until(lambda: not control.agent.states and not control.rows())
    assert next(once, None) is None
    assert control.routed() == set()


async def test_only_the_holder_of_the_lease_acts(control, database, agent, home, clock) -> None:
    standby_agent = type(agent)()
    standby = Control(database, standby_agent, home, clock, "two")
    async with control.running():
        await control.until(lambda: control.home.routes.exists())
        async with standby.running():
            await standby.until(lambda: standby.loop._waits)
            standby.write(CREATING)
            control.loop.hint()
            await control.in_service()
            await standby.until(lambda: not standby.loop._wake.is_set)
            assert standby_agent.asked == []
    async with standby.running():
        await standby.until(lambda: control.rows() == set(standby_agent.states))
        await standby.in_service()


async def test_a_lost_lease_stops_what_was_begun(control) -> None:
    async with control.running():
        await control.until(lambda: control.home.routes.exists())
        control.clock.time += LEASE_SECONDS
        with control.database.write() as connection:
            assert leases.acquire(connection, LEASE_NAME, "two", control.clock.now(), 60)
        control.write(CREATING)
        await control.until(lambda: not control.loop._lease.is_ours)

        assert control.rows() == set()
        assert control.agent.asked == []


async def test_the_lease_is_given_back_at_the_end(control) -> None:
    async with control.running():
        await control.until(lambda: control.home.routes.exists())

    with control.database.write() as connection:
        assert leases.acquire(connection, LEASE_NAME, "two", control.clock.now(), 1)


async def test_an_error_is_told_and_gone_past(control, caplog) -> None:
    control.home.routes.mkdir()  # cannot be replaced by a file
    async with control.running():
        control.write(CREATING)
        await control.until(lambda: "Reconciling failed" in caplog.text)
        control.home.routes.rmdir()
        control.clock.advance(60)
        await control.in_service()
    assert control.routed() == control.rows()


class Killed(BaseException):
    """As kill -9 would: nothing after it runs."""


class CutDatabase(Database):
    """Calls `touch` before and after each write."""

    touch: Callable[[], None]

    @contextmanager
    def write(self) -> Iterator[Connection]:
        self.touch()
        with super().write() as connection:
            yield connection
        self.touch()


@pytest.mark.parametrize("kill_at", range(1, 21))
async def test_killed_anywhere_it_ends_the_same(kill_at, database, agent, home, clock) -> None:
    """Control dies at its n-th touch of the state or the agent, and another goes on."""
    touches = itertools.count(1)

    def touch(*_: object) -> None:
        if next(touches) == kill_at:
            raise Killed

    cut = CutDatabase(str(database.engine.url))
    cut.touch = touch
    agent.before_answer = touch
    user = Control(database, agent, home, clock)
    updated = endpoint(EndpointStatus.UPDATING, current=D1, target=D2)
    for wanted, count in ((CREATING, 2), (updated, 1)):
        user.write(wanted)
        settled = False
        while not settled:
            control = Control(cut, agent, home, clock)
            async with control.running() as task:
                await user.until(lambda n=count, t=task: t.done() or user.at_rest(n))
                settled = not task.done()
        clock.advance(1.0)
    cut.close()

    assert next(touches) > kill_at + 1
    assert user.record().current == D2


def test_an_instance_id_is_as_ec2s() -> None:
    made = new_instance_id(random.Random(1))

    assert made == new_instance_id(random.Random(1))
    assert made.startswith("i-")
    assert len(made) == 19
    int(made[2:], 16)


async def test_who_stands_by_has_no_routes_and_knows_who_leads(control, home, clock) -> None:
    def table() -> RouteTable:
        return msgspec.json.decode(home.routes.read_bytes(), type=RouteTable)

    async with control.running():
        control.write(CREATING)
        await control.in_service()
        assert table().leader is None
    with control.database.write() as connection:
        assert leases.acquire(connection, LEASE_NAME, "host:/other", clock.now(), LEASE_SECONDS)
    async with control.running():
        await control.until(lambda: table().leader == "host:/other")
        assert table().routes == {}
        with control.database.write() as connection:
            assert leases.release(connection, LEASE_NAME, "host:/other")
        await control.in_time(lambda: table().leader is None and len(control.routed()) == 2)


async def test_a_first_look_ends_with_routes_or_with_the_name_of_who_leads(
    control, agent, home, short_path, clock
) -> None:
    other_home = prepare_home(short_path / "other")
    standing_by = Control(control.database, type(agent)(), other_home, clock, "two")
    async with asyncio.timeout(120), control.running():
        await control.loop.first_look.wait()
        assert home.routes.exists()
        async with standing_by.running():
            await standing_by.loop.first_look.wait()
            table = msgspec.json.decode(other_home.routes.read_bytes(), type=RouteTable)
            assert table.leader == "one"


async def test_a_first_look_that_fails_keeps_nobody_waiting(control) -> None:
    control.home.routes.mkdir()
    async with asyncio.timeout(120), control.running():
        await control.loop.first_look.wait()


async def test_who_stands_by_names_the_leader_for_as_long_as_it_leads(
    control, database, agent, short_path, clock
) -> None:
    """On SQLite the leader writes its row once: the lock says that it is still there."""
    state = Database(str(database.engine.url), locks_leases=True)
    leading = Control(state, agent, control.home, clock)
    standing_by = Control(state, type(agent)(), prepare_home(short_path / "other"), clock, "two")

    def leader() -> str | None:
        table = msgspec.json.decode(standing_by.home.routes.read_bytes(), type=RouteTable)
        return table.leader

    async with leading.running():
        leading.write(CREATING)
        await leading.in_service()
        clock.advance(10 * LEASE_SECONDS)
        async with standing_by.running():
            await standing_by.in_time(standing_by.home.routes.exists)
            assert (leader(), standing_by.routed()) == ("one", set())
    state.close()


def routed_stores(control) -> list[str | None]:
    table = msgspec.json.decode(control.home.routes.read_bytes(), type=RouteTable)
    routes = [variant.offline_results for variant in table.routes[NAME].variants]
    return [None if route is None else route.file for route in routes]


async def test_an_endpoint_without_a_model_comes_into_service_with_its_store(control) -> None:
    only = with_results(deployment("d1", 1), only=True)
    control.store_builds.gate.clear()
    async with control.running():
        control.write(endpoint(EndpointStatus.CREATING, target=only))
        await control.until(lambda: bool(control.store_builds.requests))
        await control.slept(LONGEST_REST_SECONDS)
        assert control.status() is EndpointStatus.CREATING
        control.store_builds.gate.set()
        await control.in_service(count=0)
    assert (routed_stores(control), control.agent.asked) == (["d1.a.0.db"], [])


async def test_a_refresh_is_routed_when_its_store_is_whole_and_the_old_one_goes(control) -> None:
    only = with_results(deployment("d1", 1), only=True)
    serving = endpoint(EndpointStatus.IN_SERVICE, current=only)
    folder = control.home.offline_results
    async with control.running():
        control.write(serving)
        await control.until(lambda: control.home.routes.exists())
        await control.until(lambda: routed_stores(control) == ["d1.a.0.db"])
        control.store_builds.gate.clear()
        newer = with_results(deployment("d1", 1), only=True, revision=1)
        control.write(msgspec.structs.replace(serving, current=newer))
        await control.until(lambda: len(control.store_builds.requests) == 2)
        await control.slept(LONGEST_REST_SECONDS)
        assert routed_stores(control) == ["d1.a.0.db"]
        control.store_builds.gate.set()
        await control.until(lambda: routed_stores(control) == ["d1.a.1.db"])
        await control.until(lambda: [path.name for path in folder.iterdir()] == ["d1.a.1.db"])
        control.write(endpoint(EndpointStatus.DELETING, current=newer))
        await control.until(lambda: not list(folder.iterdir()))
