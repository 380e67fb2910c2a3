"""The loop of endpoints is killed, loses its lease, and stands by."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from sqlalchemy import Connection

from sagehen.base.home import prepare_home
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS
from sagehen.frame.routes import RouteTable
from sagehen.services.sagemaker.hosting.reconciler.loop import (
    LEASE_NAME,
    new_instance_id,
)
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state import leases
from sagehen.state.database import Database
from sagehen.state.leases import LEASE_SECONDS
from support.fleet import NAME, deployment, endpoint
from support.hosting_loop import CREATING, D1, D2, Control
from support.offline_results import with_results


@pytest.fixture
def control(database, agent, home, clock) -> Control:
    return Control(database, agent, home, clock)


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
    state = Database(str(database.engine.url), by_control=True)
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
        control.write(msgspec.structs.replace(serving, current=newer, modified_at=2.0))
        await control.until(lambda: len(control.store_builds.requests) == 2)
        await control.slept(LONGEST_REST_SECONDS)
        assert routed_stores(control) == ["d1.a.0.db"]
        control.store_builds.gate.set()
        await control.until(lambda: routed_stores(control) == ["d1.a.1.db"])
        await control.until(lambda: [path.name for path in folder.iterdir()] == ["d1.a.1.db"])
        control.write(endpoint(EndpointStatus.DELETING, current=newer))
        await control.until(lambda: not list(folder.iterdir()))
