"""How many instances calls start, and when these stop."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.demand import VariantUse
from sagehen.services.sagemaker.hosting.reconciler.on_demand import Room, follow_demand
from sagehen.services.sagemaker.hosting.reconciler.plan import Facts, plan
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
)
from support.fleet import counted_ids, deployment, endpoint, instance, report, serverless

NOW, IDLE = 10_000.0, 300.0
STARTING, IN_SERVICE = InstanceState.STARTING, InstanceState.IN_SERVICE
ROOM = Room(idle_seconds=IDLE, free_instances=10, free_memory_bytes=2**40)
WAITING = VariantUse(waiting=1, last_used_at=NOW)
FULL = VariantUse(waiting=1, full_instances=1, last_used_at=NOW)
BUSY = VariantUse(last_used_at=NOW - 10, peak=1)
IDLED = VariantUse(last_used_at=NOW - IDLE)


def from_zero(count: int = 0) -> Deployment:
    made = deployment("d1", count)
    variant = msgspec.structs.replace(made.variants[0], scales_from_zero=True)
    return msgspec.structs.replace(made, variants=(variant,))


def serving(current: Deployment, running: int = 0) -> EndpointRecord:
    return endpoint(
        EndpointStatus.IN_SERVICE, current=current, running={"a": running} if running else None
    )


@dataclass
class Case:
    id: str
    endpoint: EndpointRecord
    use: VariantUse
    states: tuple[InstanceState, ...] = ()
    slots: int | None = 2
    room: Room = ROOM
    after: int = 0
    reason: str | None = None
    wake_at: float | None = None


CASES = [
    Case("nobody calls", serving(serverless()), IDLED),
    Case("the first call starts one", serving(serverless()), WAITING, after=1,
         reason="calls wait"),
    Case("one serves since the calls came", serving(serverless(), 1), WAITING, (IN_SERVICE,),
         after=1),
    Case("the second has started since calls found the first full", serving(serverless(), 2), FULL,
         (IN_SERVICE,) * 2, after=2),
    Case("one starts: more calls start no other", serving(serverless(), 1), WAITING, (STARTING,),
         after=1),
    Case("one serves, and calls wait", serving(serverless(), 1), FULL, (IN_SERVICE,), after=2,
         reason="calls wait"),
    Case("as many as the most concurrency needs", serving(serverless(4), 2),
         VariantUse(waiting=1, full_instances=2, last_used_at=NOW), (IN_SERVICE,) * 2, after=2),
    Case("slots for all that may come at once", serving(serverless(8), 1), FULL, (IN_SERVICE,),
         slots=None, after=1),
    Case("no memory for another", serving(serverless(), 1), FULL, (IN_SERVICE,),
         room=Room(idle_seconds=IDLE, free_instances=9, free_memory_bytes=2**30 - 1), after=1),
    Case("the first needs no free memory", serving(serverless()), WAITING,
         room=Room(idle_seconds=IDLE, free_instances=1), after=1, reason="calls wait"),
    Case("no instance is left", serving(serverless()), WAITING, room=Room(idle_seconds=IDLE)),
    Case("in use", serving(serverless(), 1), BUSY, (IN_SERVICE,), after=1,
         wake_at=NOW - 10 + IDLE),
    Case("idle for long enough", serving(serverless(), 1), IDLED, (IN_SERVICE,), reason="idle"),
    Case("idle since it was updated only", msgspec.structs.replace(serving(serverless(), 1),
         modified_at=NOW - 5), IDLED, (IN_SERVICE,), after=1, wake_at=NOW - 5 + IDLE),
    Case("fewer calls than before", serving(serverless(), 4), BUSY, (IN_SERVICE,) * 4, after=1,
         reason="fewer calls", wake_at=NOW - 10 + IDLE),
    Case("the peak is not known after a restart", serving(serverless(), 4),
         VariantUse(last_used_at=NOW - 10, peak=1, since=NOW - 20),
         (IN_SERVICE,) * 4, after=4, wake_at=NOW - 10 + IDLE),
    Case("provisioned concurrency starts what it needs", serving(serverless(8, 5), 1), IDLED,
         (IN_SERVICE,), after=3, reason="provisioned concurrency"),
    Case("provisioned concurrency stays", serving(serverless(8, 5), 3), IDLED, (IN_SERVICE,) * 3,
         after=3),
    Case("beyond it, idle", serving(serverless(8, 3), 4), IDLED, (IN_SERVICE,) * 4, after=2,
         reason="idle"),
    Case("from zero: the first call starts one", serving(from_zero()), WAITING, after=1,
         reason="calls wait"),
    Case("from zero: never more than one", serving(from_zero(), 1), FULL, (IN_SERVICE,),
         after=1),
    Case("from zero: idle", serving(from_zero(), 1), IDLED, (IN_SERVICE,), reason="idle"),
    Case("from zero: scaled by others now", serving(from_zero(2), 1), WAITING, (IN_SERVICE,)),
    Case("deleting", endpoint(EndpointStatus.DELETING, current=serverless(), running={"a": 1}),
         WAITING, (IN_SERVICE,)),
]  # fmt: skip


def rows_of(case: Case):
    rows = tuple(instance(f"i{n}", state=state) for n, state in enumerate(case.states))
    reports = {
        row.instance_id: msgspec.structs.replace(
            report(row.instance_id, row.state), slots=case.slots
        )
        for row in rows
    }
    return rows, reports


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_how_many_run(case: Case) -> None:
    rows, reports = rows_of(case)
    followed = follow_demand(
        case.endpoint, case.endpoint, rows, reports, {"a": case.use}, case.room, NOW
    )
    assert (followed.endpoint.running or {}).get("a", 0) == case.after
    assert followed.wake_at == case.wake_at
    reasons = [change.reason for change in followed.changes]
    assert reasons == ([] if case.reason is None else [case.reason])


def facts(record: EndpointRecord, *rows: Any, use: VariantUse = IDLED) -> Facts:
    reports = {row.instance_id: report(row.instance_id, row.state) for row in rows}
    return Facts(
        endpoint=record, instances=rows, reports=reports, retries={}, uses={"a": use}, room=ROOM,
        now=NOW,
    )  # fmt: skip


def test_a_new_one_proves_that_its_model_starts() -> None:
    creating = endpoint(EndpointStatus.CREATING, target=serverless())
    step = plan(facts(creating), counted_ids())
    assert (step.endpoint, len(step.added)) == (None, 1)
    row = instance("i1", state=IN_SERVICE)
    step = plan(facts(creating, row), counted_ids())
    assert step.endpoint is not None
    assert (step.endpoint.status, step.endpoint.running) == (EndpointStatus.IN_SERVICE, {"a": 1})
    assert not any(changed.stop_at for changed in step.changed)


def test_a_model_that_does_not_start_fails_its_endpoint() -> None:
    creating = endpoint(EndpointStatus.CREATING, target=serverless())
    step = plan(facts(creating, instance("i1", state=InstanceState.FAILED)), counted_ids())
    assert step.endpoint is not None
    assert step.endpoint.status is EndpointStatus.FAILED


def test_a_new_config_proves_itself_while_the_old_one_is_at_zero() -> None:
    updating = endpoint(
        EndpointStatus.UPDATING, current=serverless(), target=serverless(identity="d2")
    )
    step = plan(facts(updating), counted_ids())
    assert [row.deployment_id for row in step.added] == ["d2"]


def test_new_limits_alone_start_nothing() -> None:
    updating = endpoint(EndpointStatus.UPDATING, current=serverless(), target=serverless(9))
    step = plan(facts(updating), counted_ids())
    assert step.endpoint is not None
    assert (step.endpoint.status, step.added) == (EndpointStatus.IN_SERVICE, ())


def test_an_idle_one_leaves_the_routes_before_it_stops() -> None:
    record = serving(serverless(), 1)
    step = plan(facts(record, instance("i1", state=IN_SERVICE)), counted_ids())
    assert step.endpoint is not None
    assert step.endpoint.running is None
    assert [row.stop_at is not None for row in step.changed] == [True]
    assert step.stop == ()


def test_a_killed_control_goes_on_from_the_row() -> None:
    """The message is lost, but the count that it has raised is not."""
    record = serving(serverless(), 1)
    step = plan(facts(record, use=BUSY), counted_ids())
    assert [row.variant_name for row in step.added] == ["a"]
