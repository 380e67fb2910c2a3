"""One pass over the endpoints: read rows, take each endpoint's next step, publish the routes.

The loop asks the agent after that.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.container_specs import InstanceSpec, InstanceState
from sagehen.frame.routes import NodeRoute
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.events import endpoint_event
from sagehen.services.sagemaker.hosting.reconciler.agenda import Agenda, SharedFacts
from sagehen.services.sagemaker.hosting.reconciler.calls import OnDemand
from sagehen.services.sagemaker.hosting.reconciler.columns import (
    instance_columns,
    leaving_columns,
)
from sagehen.services.sagemaker.hosting.reconciler.draining import Draining
from sagehen.services.sagemaker.hosting.reconciler.live_routes import LiveRoutes, of_names
from sagehen.services.sagemaker.hosting.reconciler.needs import Needs
from sagehen.services.sagemaker.hosting.reconciler.on_demand import Room
from sagehen.services.sagemaker.hosting.reconciler.plan import (
    EndpointStep,
    Facts,
    Reports,
    Retry,
    leftovers,
    plan,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import Departures, RouteFile
from sagehen.services.sagemaker.hosting.reconciler.rows import (
    EndpointRows,
    KnownRows,
    make_rows,
    read_backlogs,
    rows_after,
)
from sagehen.services.sagemaker.hosting.records import (
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
)
from sagehen.services.sagemaker.offline_results.stores import (
    NO_STORES,
    StoreRequest,
    StoreStates,
)
from sagehen.state.database import Database
from sagehen.state.leases import WriteCheck

__all__ = ["ClusterNodes", "EndpointPass", "InstanceRequests"]

log = logging.getLogger(__name__)

ALL_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class ClusterNodes:
    """The machines of a cluster. Both functions are called in a thread."""

    routes: Callable[[], Mapping[str, NodeRoute]]
    leaving: Callable[[], frozenset[str]]
    """returns ids of instances that others replace before they stop"""


@dataclass(frozen=True, kw_only=True)
class InstanceRequests:
    """Requests to the agent, and when the next pass is due."""

    start: tuple[InstanceSpec, ...]
    stop: tuple[str, ...]
    stores: tuple[StoreRequest, ...] = ()
    """all stores of offline results that are needed"""
    warm_images: tuple[str, ...] = ()
    """of all containers that calls may start"""
    wake_at: float | None
    idle_at: float | None = None
    """when an instance that calls have started may be stopped"""
    settled: bool
    """Only an operation or a report can change anything."""


class EndpointPass:
    """Takes passes, one at a time; its memory of retries and departed routes may be lost.

    A pass plans the endpoints of which anything has changed. It plans all of them first, after an
    error, and each ALL_SECONDS, which bounds the harm of a change that went unnoticed.
    """

    def __init__(
        self,
        database: Database,
        routes: RouteFile,
        lease: WriteCheck,
        new_id: Callable[[], str],
        on_routes: Callable[[], None] = lambda: None,
        on_demand: OnDemand | None = None,
        draining: Draining | None = None,
        cluster: ClusterNodes | None = None,
    ) -> None:
        self._draining = draining or Draining()
        self._called: frozenset[str] = frozenset()
        self._cluster = cluster
        self._on_routes = on_routes
        self._on_demand = on_demand
        self._room = Room()
        self._known = KnownRows()
        self._agenda = Agenda()
        self._needs = Needs()
        self._shared = SharedFacts()
        self._all_at = -math.inf
        """when all endpoints were planned"""
        self._database = database
        self._routes = routes
        self._live = LiveRoutes()
        self._lease = lease
        self._new_id = new_id
        self._departures = Departures()
        self._has_published = False
        """the table in force was written, or confirmed, since this control leads"""
        self._retries: dict[str, Mapping[str, Retry]] = {}
        """by endpoint"""

    def run(
        self,
        reports: Reports | None,
        now: float,
        busy: frozenset[str] = frozenset(),
        stores: StoreStates = NO_STORES,
    ) -> InstanceRequests:
        """Takes the next step of every endpoint that has one.

        Args:
            busy: ids of instances that must finish their work before they are stopped.
            stores: of offline results.

        Raises:
            LeaseLost: another control has taken over.
            OSError: the routes cannot be written; nothing may be stopped before that.
        """
        try:
            return self._run(reports, now, busy, stores)
        except BaseException:
            self._known.forget()  # what was written, and what was not, is not known now
            raise

    def _run(
        self, reports: Reports | None, now: float, busy: frozenset[str], stores: StoreStates
    ) -> InstanceRequests:
        names = sorted(self._look(reports, now, busy, stores))
        self._called = self._draining.called(self._columns_of(names))
        if self._on_demand is not None and self._known.on_demand:
            self._room = self._on_demand.room(len(self._known.endpoint_of))
        rows = self._known.rows
        planned = {name: self._plan(name, now) for name in names}
        # Before the rows: clients may invoke as soon as they read `InService`, and dead addresses
        # must go first.
        self._publish(rows_after(rows, planned), names, now)
        steps = {name: self._step(name, planned[name], now) for name in names}
        if any(step.writes for step in steps.values()):
            self._publish(self._known.rows, names, now)
        for name, step in steps.items():
            self._note(name, step)
        self._agenda.close(self._shared)
        if self._on_demand is not None:
            on_demand = (self._known.endpoints[name] for name in self._known.on_demand)
            self._on_demand.follow(on_demand)
        return self._requests(steps.values(), now)

    def _look(
        self, reports: Reports | None, now: float, busy: frozenset[str], stores: StoreStates
    ) -> set[str]:
        """Brings the rows up to date; returns the endpoints to plan."""
        known, agenda = self._known, self._agenda
        if not 0 <= now - self._all_at < ALL_SECONDS:  # or the clock was set back
            known.forget()
        plans_all = known.are_forgotten
        with self._database.read() as connection:
            names = known.refresh(connection)
            backlogs = read_backlogs(connection, known)
        leaving = self._cluster.leaving() if self._cluster is not None else frozenset()
        self._shared = shared = SharedFacts(
            reports=reports, leaving=leaving, stores=stores, backlogs=backlogs, busy=busy
        )
        if plans_all or agenda.concerns_all(shared):
            if plans_all:
                agenda.restart()
                # Endpoints may have gone in a pass that failed before it could note that.
                self._needs = Needs()
                self._retries = of_names(self._retries, {*known.endpoints, *known.instances})
                self._all_at = now
            return {*names, *known.endpoints, *known.instances, *self._routes.routes}
        return names | known.on_demand | agenda.due(shared, known.endpoint_of, now)

    def _columns_of(self, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
        routed = instance_columns(of_names(self._routes.routes, names))
        return {**routed, **self._routes.leaving}

    def _note(self, name: str, step: EndpointStep) -> None:
        """Notes what the endpoint waits for now."""
        endpoint, group = self._known.endpoints.get(name), self._known.instances.get(name, ())
        self._draining.note(name, step.draining, step.cut_off)
        self._needs.note(name, endpoint)
        self._retries.pop(name, None)
        if endpoint is None and not group:
            self._agenda.forget([name])
            return
        if step.retries:
            self._retries[name] = step.retries
        self._agenda.note(name, step, is_at_rest=_is_at_rest(endpoint, group))

    def _requests(self, steps: Iterable[EndpointStep], now: float) -> InstanceRequests:
        reports = self._shared.reports
        stop = [instance_id for step in steps for instance_id in step.stop]
        stop += leftovers(self._known.endpoint_of.keys(), reports) if reports is not None else ()
        settle = {instance_id: self._departures.settle_at(instance_id, now) for instance_id in stop}
        times = [self._agenda.wake_at, *settle.values()]
        start = tuple(spec for step in steps for spec in step.start)
        return InstanceRequests(
            start=start,
            stop=tuple(instance_id for instance_id in stop if settle[instance_id] is None),
            stores=self._needs.stores,
            warm_images=self._needs.warm_images,
            wake_at=min((at for at in times if at is not None), default=None),
            idle_at=self._agenda.idle_at,
            settled=not (start or stop) and self._agenda.is_at_rest,
        )

    def take_over(self) -> None:
        """Call it before the first pass after another control has led."""
        self._routes.read_again()
        self._known.forget()
        self._has_published = False
        if self._on_demand is not None:
            self._on_demand.demand.begin()

    def stand_by(self, leader: str, address: str | None = None) -> None:
        """Empties the routes while `leader` works on the endpoints: its instances cannot be reached
        from here, but by its gateways at `address`. In a cluster they can, and the leader sends the
        routes."""
        if self._cluster is None and self._routes.publish({}, leader, leader_address=address):
            self._on_routes()

    def _publish(self, rows: EndpointRows, names: Sequence[str], now: float) -> None:
        """Publishes the routes, of which those of `names` may be new."""
        reports = self._shared.reports
        if reports is None and self._cluster is not None:
            return  # rows do not say on which node an instance is
        before = self._routes.routes
        # All that leave are of endpoints that each pass plans.
        instances = chain.from_iterable(rows.instances.get(name, ()) for name in names)
        leaving = leaving_columns(instances, of_names(before, names), self._routes.leaving)
        reserved = chain.from_iterable(leaving.values())
        stores = self._shared.stores
        routes = self._live.build(before, names, rows, reports, stores, reserved)
        nodes = self._cluster.routes() if self._cluster is not None else None
        table = self._routes.next_table(routes, leaving=leaving, nodes=nodes)
        if table is not None:
            with self._lease_held(now):
                self._routes.write(table)
                self._departures.note(of_names(before, names), of_names(routes, names), now)
        if table is not None or not self._has_published:
            self._has_published = True
            self._on_routes()

    @contextmanager
    def _lease_held(self, now: float) -> Iterator[None]:
        """Keeps other controls of a cluster from taking over while the block runs: the agent of
        this machine writes their tables into the same file. Raises LeaseLost."""
        if self._cluster is None:
            yield
            return
        with self._database.write() as connection:
            self._lease.check(connection, now)
            yield

    def _plan(self, name: str, now: float) -> EndpointStep:
        known = self._known
        facts = self._facts(known.endpoints.get(name), known.instances.get(name, ()), name, now)
        return plan(facts, self._new_id)

    def _facts(
        self,
        endpoint: EndpointRecord | None,
        of_endpoint: Iterable[InstanceRecord],
        name: str,
        now: float,
    ) -> Facts:
        shared = self._shared
        return Facts(
            endpoint=endpoint,
            instances=tuple(of_endpoint),
            reports=shared.reports,
            retries=self._retries.get(name, {}),
            busy=shared.busy,
            called=self._called,
            drain_seconds=self._draining.seconds,
            leaving=shared.leaving,
            stores=shared.stores,
            uses=self._on_demand.uses(endpoint, shared.backlogs) if self._on_demand else {},
            room=self._room,
            now=now,
        )

    def _step(self, name: str, planned: EndpointStep, now: float) -> EndpointStep:
        """Takes a planned step; if it changes rows, plans it again with locked rows."""
        if not planned.writes:
            return planned
        with self._database.write() as connection:
            self._lease.check(connection, now)
            endpoint = endpoints.get_for_update(connection, name)
            of_endpoint = instances.of_endpoint(connection, name)
            step = plan(self._facts(endpoint, of_endpoint, name, now), self._new_id)
            _write(connection, step)
            if endpoint and step.endpoint and step.endpoint.status is not endpoint.status:
                labels = tags.get(connection, endpoint.arn)
                put_event(connection, endpoint_event(step.endpoint, labels, now))
        written = make_rows([endpoint] if endpoint else [], of_endpoint)
        self._known.note(name, rows_after(written, {name: step}))
        if self._on_demand is not None:
            self._on_demand.note_starts(of_endpoint, step, self._shared.reports)
        # Endpoints share the room.
        self._room = replace(self._room, free_instances=self._room.free_instances - len(step.added))
        _log_step(name, step, endpoint)
        return step


def _is_at_rest(endpoint: EndpointRecord | None, group: Iterable[InstanceRecord]) -> bool:
    return (endpoint is None or endpoint.status in _RESTING) and all(
        instance.stop_at is None
        and instance.state in (InstanceState.IN_SERVICE, InstanceState.FAILED)
        for instance in group
    )


_RESTING = (EndpointStatus.IN_SERVICE, EndpointStatus.FAILED)


def _write(connection: Connection, step: EndpointStep) -> None:
    if step.endpoint is not None:
        endpoints.update(connection, step.endpoint)
    for record in step.added:
        instances.insert(connection, record)
    for record in step.changed:
        instances.update(connection, record)
    for instance_id in step.dropped:
        instances.delete(connection, instance_id)
    if step.gone is not None:
        tags.drop(connection, step.gone.arn)
        endpoints.delete(connection, step.gone.name)


def _log_step(name: str, step: EndpointStep, before: EndpointRecord | None) -> None:
    for change in step.running:
        about = {"action": "running", "endpoint": name, **msgspec.structs.asdict(change)}
        log.info("Calls change how many instances run.", extra=about)
    if step.gone is not None:
        log.info("An endpoint is gone.", extra={"action": "endpoint_gone", "endpoint": name})
    elif step.endpoint is not None and (before is None or _is_moved(before, step.endpoint)):
        about = {
            "action": "endpoint_moved",
            "endpoint": name,
            "status": step.endpoint.status.value,
            "failure_reason": step.endpoint.failure_reason,
        }
        level = logging.WARNING if step.endpoint.failure_reason else logging.INFO
        log.log(level, "An endpoint has a new status.", extra=about)


def _is_moved(before: EndpointRecord, after: EndpointRecord) -> bool:
    return msgspec.structs.replace(before, running=after.running) != after
