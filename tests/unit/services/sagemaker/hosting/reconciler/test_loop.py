"""The loop that makes instances match endpoints."""

import asyncio

import msgspec
import pytest

from sagehen.frame import tags
from sagehen.frame.container_specs import InstanceOwner, InstanceState
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.database import Database
from support.hosting_loop import CREATING, D1, D2, Control


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
    state = Database(str(database.engine.url), by_control=True)
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
    look = control.loop._pass._look
    once = iter([True])

    def look_then_delete(*given):
        names = look(*given)
        if next(once, False):
            deleting = msgspec.structs.replace(CREATING, status=EndpointStatus.DELETING)
            control.write(deleting)
        return names

    control.loop._pass._look = look_then_delete
    async with control.running():
        await control.until(lambda: control.status() is None)
        await control.until(lambda: not control.agent.states and not control.rows())
    assert next(once, None) is None
    assert control.routed() == set()
