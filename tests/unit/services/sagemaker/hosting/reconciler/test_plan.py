"""Each state of an endpoint, and what its next step is."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from sagehen.base.retry import LONGEST_BACKOFF_SECONDS
from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.reconciler.plan import (
    DELETED_DRAIN_SECONDS,
    DRAIN_LOOK_SECONDS,
    DRAIN_SECONDS,
    EndpointStep,
    Facts,
    Retry,
    leftovers,
)
from sagehen.services.sagemaker.hosting.reconciler.plan import plan as make_plan
from sagehen.services.sagemaker.hosting.records import EndpointStatus, InstanceRecord
from support.fleet import counted_ids, deployment, endpoint, instance, report

NOW = 100.0
SOON = NOW + DRAIN_SECONDS
DRAIN = 540.0
STARTING, IN_SERVICE = InstanceState.STARTING, InstanceState.IN_SERVICE
STOPPING, FAILED = InstanceState.STOPPING, InstanceState.FAILED
ONE, TWO, OTHER = deployment("d1", 1), deployment("d1", 2), deployment("d2", 1)
CREATING = endpoint(EndpointStatus.CREATING, target=ONE)
SERVING = endpoint(EndpointStatus.IN_SERVICE, current=ONE)
UPDATING = endpoint(EndpointStatus.UPDATING, current=ONE, target=OTHER)
GROWING = endpoint(EndpointStatus.UPDATING, current=ONE, target=TWO)
SHRINKING = endpoint(EndpointStatus.UPDATING, current=TWO, target=ONE)
SHADOWED, SHADOWED_TWICE = deployment("d1", 1, shadow=1), deployment("d1", 1, shadow=2)
DELETING = endpoint(EndpointStatus.DELETING, current=ONE)
BROKEN = endpoint(EndpointStatus.FAILED, target=ONE)


@dataclass
class Case:
    """Facts in short: what the rows and the agent say of each instance; and the step expected.

    An instance is given as (row, what the agent reports of it or None).
    """

    id: str
    endpoint: Any
    instances: tuple[tuple[InstanceRecord, InstanceState | None], ...] = ()
    retries: dict[str, Retry] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    agent_away: bool = False
    status: EndpointStatus | None = None
    reason: str | None = None
    current: Any = None
    gone: bool = False
    added: tuple[str, ...] = ()
    """(deployment id) of each."""
    dropped: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    cut_off: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    stop_at: dict[str, float] = field(default_factory=dict)
    wake_at: float | None = None


SERVES = (instance("i1", "d1", IN_SERVICE), IN_SERVICE)
SERVES_TOO = (instance("i2", "d1", IN_SERVICE), IN_SERVICE)
SHADOW = (instance("s1", "d1", IN_SERVICE, variant="s"), IN_SERVICE)
LEAVING = instance("i1", "d1", IN_SERVICE, stop_at=NOW)

CASES = [
    Case("creating: rows are made and asked for", CREATING, added=("d1",), start=("new-1",)),
    Case("creating: the agent is away, rows are made", CREATING, agent_away=True, added=("d1",)),
    Case("creating: a row the agent has not heard of", CREATING, ((instance("i1"), None),),
         start=("i1",)),
    Case("creating: waits while it starts", CREATING, ((instance("i1"), STARTING),)),
    Case("creating: in service", CREATING, ((instance("i1"), IN_SERVICE),),
         status=EndpointStatus.IN_SERVICE, current=ONE),
    Case("creating: one of two is not enough", endpoint(EndpointStatus.CREATING, target=TWO),
         ((instance("i1"), IN_SERVICE), (instance("i2"), STARTING))),
    Case("creating: failed, the others leave", endpoint(EndpointStatus.CREATING, target=TWO),
         ((instance("i1"), FAILED), (instance("i2"), STARTING)),
         status=EndpointStatus.FAILED, reason="i1 broke.", stop=("i1", "i2"),
         stop_at={"i1": NOW, "i2": NOW}),
    Case("creating no instances at all", endpoint(EndpointStatus.CREATING,
         target=deployment("d1", 0)), status=EndpointStatus.IN_SERVICE,
         current=deployment("d1", 0)),
    Case("failed: stays, its instances go", BROKEN, ((instance("i1", stop_at=1.0), None),),
         dropped=("i1",)),
    Case("failed: nothing more to do", BROKEN),
    Case("in service: nothing to do", SERVING, (SERVES,)),
    Case("in service: the agent is away, nothing is touched", SERVING, (SERVES,), agent_away=True),
    Case("in service: the agent was restarted", SERVING, ((SERVES[0], None),), start=("i1",)),
    Case("in service: its row is missing", SERVING, added=("d1",), start=("new-1",)),
    Case("in service: restarts, is left alone", SERVING, ((SERVES[0], STARTING),)),
    Case("in service: fails the first time, waits", SERVING, ((SERVES[0], FAILED),),
         wake_at=NOW + 1),
    Case("in service: failed, not due", SERVING, ((SERVES[0], FAILED),),
         {"i1": Retry(attempts=3, at=NOW + 5)}, wake_at=NOW + 5),
    Case("in service: failed, due", SERVING, ((SERVES[0], FAILED),),
         {"i1": Retry(attempts=3, at=NOW)}, start=("i1",), wake_at=NOW + 16),
    Case("in service: failed for long, the wait is bounded", SERVING, ((SERVES[0], FAILED),),
         {"i1": Retry(attempts=5000, at=NOW)}, start=("i1",),
         wake_at=NOW + LONGEST_BACKOFF_SECONDS),
    Case("in service: failed, and the clock was set back", SERVING, ((SERVES[0], FAILED),),
         {"i1": Retry(attempts=0, at=NOW + 3600)}, start=("i1",), wake_at=NOW + 2),
    Case("in service: one too many, the one that serves stays", SERVING,
         ((instance("i1"), STARTING), SERVES_TOO), stop=("i1",), stop_at={"i1": NOW}),
    Case("in service: a row of an earlier endpoint of that name", SERVING,
         (SERVES, (instance("old", "d0", IN_SERVICE), IN_SERVICE)), stop_at={"old": SOON},
         wake_at=SOON),
    Case("updating: the new one is made beside the old", UPDATING, (SERVES,), added=("d2",),
         start=("new-1",)),
    Case("updating: waits, the old one serves", UPDATING, (SERVES, (instance("i2", "d2"),
         STARTING))),
    Case("updating: switches, the old one leaves", UPDATING, (SERVES, (instance("i2", "d2"),
         IN_SERVICE)), status=EndpointStatus.IN_SERVICE, current=OTHER, stop_at={"i1": SOON},
         wake_at=SOON),
    Case("updating: fails, the old one stays", UPDATING, (SERVES, (instance("i2", "d2"), FAILED)),
         status=EndpointStatus.IN_SERVICE, reason="i2 broke.", current=ONE, stop=("i2",),
         stop_at={"i2": NOW}),
    Case("updating: the old one failed, which is not the update's fault", UPDATING,
         ((SERVES[0], FAILED), (instance("i2", "d2"), STARTING)), wake_at=NOW + 1),
    Case("updating: the agent was restarted", UPDATING, ((SERVES[0], None),
         (instance("i2", "d2"), None)), start=("i1", "i2")),
    Case("growing: one more is made", GROWING, (SERVES,), added=("d1",), start=("new-1",)),
    Case("growing: done", GROWING, (SERVES, (instance("i2"), IN_SERVICE)),
         status=EndpointStatus.IN_SERVICE, current=TWO),
    Case("growing: the new one fails, the count stays", GROWING, (SERVES, (instance("i2"),
         FAILED)), status=EndpointStatus.IN_SERVICE, reason="i2 broke.", current=ONE,
         stop=("i2",), stop_at={"i2": NOW}),
    Case("growing: one that failed before neither fails nor delays it", GROWING,
         ((SERVES[0], FAILED), SERVES_TOO), {"i1": Retry(attempts=1, at=NOW + 2)},
         status=EndpointStatus.IN_SERVICE, current=TWO, wake_at=NOW + 2),
    Case("shrinking: at once", SHRINKING, (SERVES, SERVES_TOO),
         status=EndpointStatus.IN_SERVICE, current=ONE, stop_at={"i2": SOON}, wake_at=SOON),
    Case("shrinking: the one that does not serve leaves", SHRINKING, ((SERVES[0], STARTING),
         SERVES_TOO), status=EndpointStatus.IN_SERVICE, current=ONE, stop=("i1",),
         stop_at={"i1": NOW}),
    Case("weights only: at once, whatever the instance does",
         endpoint(EndpointStatus.UPDATING, current=ONE, target=deployment("d1", 1, weight=3)),
         ((SERVES[0], STARTING),), status=EndpointStatus.IN_SERVICE,
         current=deployment("d1", 1, weight=3)),
    Case("leaving: not yet", SERVING, (SERVES, (instance("i2", "d0", IN_SERVICE, stop_at=SOON),
         IN_SERVICE)), wake_at=SOON),
    Case("leaving: now", SERVING, (SERVES, (instance("i2", "d0", IN_SERVICE, stop_at=NOW),
         IN_SERVICE)), stop=("i2",)),
    Case("leaving: not while it works on an asynchronous request", SERVING, (SERVES,
         (instance("i2", "d0", IN_SERVICE, stop_at=NOW), IN_SERVICE)), busy=frozenset({"i2"})),
    Case("deleting: whatever it works on", DELETING, ((LEAVING, IN_SERVICE),),
         busy=frozenset({"i1"}), stop=("i1",)),
    Case("shrinking: the one that works on an asynchronous request stays", SHRINKING, (SERVES,
         SERVES_TOO), busy=frozenset({"i2"}), status=EndpointStatus.IN_SERVICE, current=ONE,
         stop_at={"i1": SOON}, wake_at=SOON),
    Case("leaving: the clock was set back", SERVING, (SERVES, (instance("i2", "d0", IN_SERVICE,
         stop_at=NOW + 3600), IN_SERVICE)), stop=("i2",), wake_at=NOW + 3600),
    Case("leaving: the agent stops it", SERVING, (SERVES, (instance("i2", "d0", STOPPING,
         stop_at=NOW), STOPPING))),
    Case("leaving: has requests", SERVING, (SERVES, (instance("i2", "d0", IN_SERVICE,
         stop_at=NOW - DRAIN + 1), IN_SERVICE)), called=frozenset({"i1", "i2"}),
         draining=frozenset({"i2"}), wake_at=NOW + DRAIN_LOOK_SECONDS),
    Case("leaving: has requests, and its time is over", SERVING, (SERVES, (instance("i2", "d0",
         IN_SERVICE, stop_at=NOW - DRAIN), IN_SERVICE)), called=frozenset({"i1", "i2"}),
         stop=("i2",), cut_off=frozenset({"i2"})),
    Case("leaving: has requests, and stops already", SERVING, (SERVES, (instance("i2", "d0",
         STOPPING, stop_at=NOW - 9), STOPPING)), called=frozenset({"i2"})),
    Case("fewer: the one without requests leaves", SERVING, (SERVES, SERVES_TOO),
         called=frozenset({"i2"}), stop_at={"i1": SOON}, wake_at=SOON),
    Case("deleting: nobody waits for requests", endpoint(EndpointStatus.DELETING, current=ONE),
         ((LEAVING, IN_SERVICE),), called=frozenset({"i1"}), stop=("i1",)),
    Case("leaving: gone", SERVING, (SERVES, (instance("i2", "d0", STOPPING, stop_at=NOW), None)),
         dropped=("i2",)),
    Case("shadow, creating: has instances of its own", endpoint(EndpointStatus.CREATING,
         target=SHADOWED), added=("d1", "d1"), start=("new-1", "new-2")),
    Case("shadow, creating: waits for it", endpoint(EndpointStatus.CREATING, target=SHADOWED),
         (SERVES, (instance("s1", variant="s"), STARTING))),
    Case("shadow, creating: all in service", endpoint(EndpointStatus.CREATING, target=SHADOWED),
         (SERVES, SHADOW), status=EndpointStatus.IN_SERVICE, current=SHADOWED),
    Case("shadow, creating: fails, and the endpoint with it", endpoint(EndpointStatus.CREATING,
         target=SHADOWED), (SERVES, (SHADOW[0], FAILED)), status=EndpointStatus.FAILED,
         reason="s1 broke.", stop=("s1",), stop_at={"i1": SOON, "s1": NOW}, wake_at=SOON),
    Case("shadow, in service: fails, is tried again, and nothing else happens",
         endpoint(EndpointStatus.IN_SERVICE, current=SHADOWED), (SERVES, (SHADOW[0], FAILED)),
         {"s1": Retry(attempts=3, at=NOW)}, start=("s1",), wake_at=NOW + 16),
    Case("shadow, growing: one more is made", endpoint(EndpointStatus.UPDATING, current=SHADOWED,
         target=SHADOWED_TWICE), (SERVES, SHADOW), added=("d1",), start=("new-1",)),
    Case("shadow, shrinking: one leaves the routes, then stops", endpoint(EndpointStatus.UPDATING,
         current=SHADOWED_TWICE, target=SHADOWED),
         (SERVES, SHADOW, (instance("s2", "d1", IN_SERVICE, variant="s"), IN_SERVICE)),
         status=EndpointStatus.IN_SERVICE, current=SHADOWED, stop_at={"s2": SOON}, wake_at=SOON),
    Case("shadow, deleting: leaves with the others", endpoint(EndpointStatus.DELETING,
         current=SHADOWED), (SERVES, SHADOW), stop_at={"i1": NOW + DELETED_DRAIN_SECONDS,
         "s1": NOW + DELETED_DRAIN_SECONDS}, wake_at=NOW + DELETED_DRAIN_SECONDS),
    Case("deleting: leaves the routes first", DELETING, (SERVES,),
         stop_at={"i1": NOW + DELETED_DRAIN_SECONDS}, wake_at=NOW + DELETED_DRAIN_SECONDS),
    Case("deleting: what still starts is stopped at once", DELETING, ((instance("i1"), STARTING),),
         stop=("i1",), stop_at={"i1": NOW}),
    Case("deleting: what the agent never heard of is dropped", DELETING, ((instance("i1"), None),),
         dropped=("i1",), gone=True),
    Case("deleting: waits for the agent's word", DELETING, ((LEAVING, None),), agent_away=True),
    Case("deleting: the last instance is gone", DELETING, ((LEAVING, None),), dropped=("i1",),
         gone=True),
    Case("deleting: had no instances", DELETING, gone=True),
    Case("deleting: a failed one", endpoint(EndpointStatus.DELETING, target=ONE), gone=True),
    Case("no endpoint: instances that are left leave", None, (SERVES,),
         stop_at={"i1": NOW + DELETED_DRAIN_SECONDS}, wake_at=NOW + DELETED_DRAIN_SECONDS),
]  # fmt: skip


def take(case: Case) -> EndpointStep:
    reports = {
        row.instance_id: report(row.instance_id, state)
        for row, state in case.instances
        if state is not None
    }
    facts = Facts(
        endpoint=case.endpoint,
        instances=tuple(row for row, _ in case.instances),
        reports=None if case.agent_away else reports,
        retries=case.retries,
        busy=case.busy,
        called=case.called,
        drain_seconds=DRAIN,
        now=NOW,
    )
    return make_plan(facts, counted_ids())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_next_step(case: Case) -> None:
    step = take(case)

    assert (step.gone is not None) == case.gone
    assert tuple(one.deployment_id for one in step.added) == case.added
    assert set(step.dropped) == set(case.dropped)
    assert {spec.instance_id for spec in step.start} == set(case.start)
    assert set(step.stop) == set(case.stop)
    assert step.cut_off == case.cut_off
    assert step.draining == case.draining
    newly = {one.instance_id: one.stop_at for one in step.changed if one.stop_at is not None}
    assert {key: at for key, at in newly.items() if at >= NOW} == case.stop_at
    assert step.wake_at == case.wake_at


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_next_status(case: Case) -> None:
    step = take(case)

    if case.status is None:
        assert step.endpoint is None
        return
    assert step.endpoint is not None
    assert step.endpoint.status is case.status
    assert step.endpoint.failure_reason == case.reason
    assert step.endpoint.current == case.current
    assert step.endpoint.modified_at == NOW
    if case.status is EndpointStatus.IN_SERVICE:
        assert step.endpoint.target is None


def test_a_failed_creation_still_says_what_it_was_made_from() -> None:
    step = take(Case("", CREATING, ((instance("i1"), FAILED),)))

    assert step.endpoint is not None
    assert step.endpoint.target == ONE


def test_a_success_clears_an_earlier_failure() -> None:
    before = endpoint(
        EndpointStatus.UPDATING, current=ONE, target=OTHER, failure_reason="the last one broke"
    )

    step = take(Case("", before, (SERVES, (instance("i2", "d2"), IN_SERVICE))))

    assert step.endpoint is not None
    assert step.endpoint.failure_reason is None


def test_what_the_agent_says_is_written_down() -> None:
    step = take(Case("", SERVING, ((instance("i1"), IN_SERVICE),)))

    assert step.changed == (instance("i1", "d1", IN_SERVICE),)


def test_nothing_is_written_where_nothing_is_new() -> None:
    assert not take(Case("", SERVING, (SERVES,))).writes


def test_a_new_instance_carries_what_its_variant_says() -> None:
    (added,) = take(Case("", CREATING)).added

    assert added == instance("new-1", "d1")


def test_the_wait_is_forgotten_once_it_serves() -> None:
    step = take(Case("", SERVING, (SERVES,), {"i1": Retry(attempts=3, at=NOW)}))

    assert step.retries == {}


def test_leftovers_are_what_no_row_speaks_of() -> None:
    reports = {one.instance_id: one for one in (
        report("i1", IN_SERVICE), report("i2", STARTING), report("i3", STOPPING)
    )}  # fmt: skip

    assert leftovers({"i1"}, reports) == ("i2",)


def test_an_instance_that_leaves_is_replaced_before_it_stops():
    def step(*observed):
        facts = Facts(
            endpoint=SERVING,
            instances=tuple(row for row, _ in observed),
            reports={row.instance_id: report(row.instance_id, state) for row, state in observed},
            retries={},
            leaving=frozenset({"i1"}),
            now=NOW,
        )
        return make_plan(facts, counted_ids())

    first = step(SERVES)
    assert [each.instance_id for each in first.added] == ["new-1"]
    assert (first.changed, first.stop) == ((), ())
    starting = step(SERVES, (instance("i2", "d1"), STARTING))
    assert (starting.added, starting.changed, starting.stop) == ((), (), ())
    served = step(SERVES, SERVES_TOO)
    assert {each.instance_id: each.stop_at for each in served.changed} == {"i1": SOON}
    assert served.added == ()


def test_of_several_that_leave_as_many_stop_as_are_replaced():
    rows = [instance(f"i{number}", "d1", IN_SERVICE) for number in range(1, 5)]
    facts = Facts(
        endpoint=endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 3)),
        instances=tuple(rows),
        reports={row.instance_id: report(row.instance_id, IN_SERVICE) for row in rows},
        retries={},
        leaving=frozenset({"i1", "i2", "i3"}),
        now=NOW,
    )
    step = make_plan(facts, counted_ids())
    assert [each.instance_id for each in step.changed] == ["i3"]
    assert len(step.added) == 2
