"""One pass over all endpoints: read rows, take each endpoint's next step, publish the routes.

The loop asks the agent after that.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.container_specs import InstanceSpec, InstanceState
from sagehen.frame.context import Record
from sagehen.frame.instance_types import is_serverless
from sagehen.frame.routes import NodeRoute
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.demand import CallDemand, VariantUse
from sagehen.services.sagemaker.hosting.events import endpoint_event
from sagehen.services.sagemaker.hosting.reconciler.columns import (
    instance_columns,
    leaving_columns,
)
from sagehen.services.sagemaker.hosting.reconciler.draining import Draining
from sagehen.services.sagemaker.hosting.reconciler.on_demand import Room
from sagehen.services.sagemaker.hosting.reconciler.plan import (
    EndpointStep,
    Facts,
    Reports,
    Retry,
    leftovers,
    plan,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import (
    Departures,
    RouteFile,
    build_routes,
)
from sagehen.services.sagemaker.hosting.reconciler.rows import (
    EndpointRows,
    read_rows,
    rows_after,
    starts_on_demand,
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
    requested_stores,
)
from sagehen.state.database import Database
from sagehen.state.leases import WriteCheck

__all__ = ["ClusterNodes", "EndpointPass", "InstanceRequests", "OnDemand"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """The inputs of decisions to start and stop instances on demand.

    Args:
        record: counts values of metrics.
    """

    demand: CallDemand
    idle_seconds: float
    max_instances: int
    free_memory: Callable[[], int]
    record: Record = lambda name, dimensions, value: None

    def room(self, rows: EndpointRows) -> Room:
        if not any(map(starts_on_demand, rows.endpoints.values())):
            return Room()
        return Room(
            idle_seconds=self.idle_seconds,
            free_instances=self.max_instances - len(rows.instance_ids),
            free_memory_bytes=self.free_memory(),
        )

    def uses(self, endpoint: EndpointRecord | None, rows: EndpointRows) -> Mapping[str, VariantUse]:
        if endpoint is None or endpoint.current is None or not starts_on_demand(endpoint):
            return {}
        variants = [variant.name for variant in endpoint.current.all_variants]
        uses = self.demand.of_endpoint(endpoint.name, variants)
        backlog = rows.backlogs.get(endpoint.name, 0)
        return uses if not backlog else dict.fromkeys(variants, self.demand.queued(backlog))

    def follow(self, rows: EndpointRows) -> None:
        self.demand.follow(
            {
                (endpoint.name, variant.name): variant.serverless
                for endpoint in rows.endpoints.values()
                if endpoint.current is not None
                for variant in endpoint.current.all_variants
                if variant.starts_on_demand
            }
        )

    def note_starts(
        self, before: Iterable[InstanceRecord], step: EndpointStep, reports: Reports | None
    ) -> None:
        """Counts the starts of serverless instances, once each."""
        served = {each.instance_id for each in before if each.state is InstanceState.IN_SERVICE}
        for instance in step.changed:
            report = (reports or {}).get(instance.instance_id)
            if (
                report is not None
                and report.state is InstanceState.IN_SERVICE
                and instance.instance_id not in served
                and is_serverless(instance.spec.instance_type)
            ):
                dimensions = {
                    "EndpointName": instance.endpoint_name,
                    "VariantName": instance.variant_name,
                }
                self.record("ModelSetupTime", dimensions, report.setup_seconds * 1e6)


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
    """Takes passes, one at a time; its memory of retries and departed routes may be lost."""

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
        self._rows = EndpointRows({}, {})
        self._busy: frozenset[str] = frozenset()
        self._stores = NO_STORES
        self._database = database
        self._routes = routes
        self._lease = lease
        self._new_id = new_id
        self._departures = Departures()
        self._retries: Mapping[str, Retry] = {}

    def run(
        self,
        reports: Reports | None,
        now: float,
        busy: frozenset[str] = frozenset(),
        stores: StoreStates = NO_STORES,
    ) -> InstanceRequests:
        """Takes the next step of every endpoint.

        Args:
            busy: ids of instances that must finish their work before they are stopped.
            stores: of offline results.

        Raises:
            LeaseLost: another control has taken over.
            OSError: the routes cannot be written; nothing may be stopped before that.
        """
        self._busy, self._stores = busy, stores
        rows = self._rows = self._read()
        columns = {**instance_columns(self._routes.routes), **self._routes.leaving}
        self._called = self._draining.called(columns)
        if self._on_demand is not None:
            self._room = self._on_demand.room(rows)
        names = rows.names
        planned = {name: self._plan(name, rows, reports, now) for name in names}
        # Before the rows: clients may invoke as soon as they read `InService`, and dead addresses
        # must go first.
        self._publish(rows_after(rows, planned), reports, now)
        steps = [self._step(name, planned[name], reports, now) for name in names]
        for name, step in zip(names, steps, strict=True):
            self._draining.note(name, step.draining, step.cut_off)
        self._retries = {key: retry for step in steps for key, retry in step.retries.items()}
        if any(step.writes for step in steps):
            rows = self._read()
            self._publish(rows, reports, now)
        if self._on_demand is not None:
            self._on_demand.follow(rows)
        return self._requests(steps, rows, reports, now)

    def _requests(
        self, steps: Sequence[EndpointStep], rows: EndpointRows, reports: Reports | None, now: float
    ) -> InstanceRequests:
        stop = [instance_id for step in steps for instance_id in step.stop]
        stop += leftovers(rows.instance_ids, reports) if reports is not None else ()
        settle = {instance_id: self._departures.settle_at(instance_id, now) for instance_id in stop}
        times = [step.wake_at for step in steps] + list(settle.values())
        idle = [step.idle_at for step in steps if step.idle_at is not None]
        start = tuple(spec for step in steps for spec in step.start)
        return InstanceRequests(
            start=start,
            stop=tuple(instance_id for instance_id in stop if settle[instance_id] is None),
            stores=requested_stores(rows.endpoints.values()),
            warm_images=_warm_images(rows.endpoints.values()),
            wake_at=min((at for at in times if at is not None), default=None),
            idle_at=min(idle, default=None),
            settled=not (start or stop) and _at_rest(rows),
        )

    def take_over(self) -> None:
        """Call it before the first pass after another control has led."""
        self._routes.read_again()
        if self._on_demand is not None:
            self._on_demand.demand.begin()

    def stand_by(self, leader: str, address: str | None = None) -> None:
        """Empties the routes while `leader` works on the endpoints: its instances cannot be reached
        from here, but by its gateways at `address`. In a cluster they can, and the leader sends the
        routes."""
        if self._cluster is None and self._routes.publish({}, leader, leader_address=address):
            self._on_routes()

    def _read(self) -> EndpointRows:
        with self._database.read() as connection:
            return read_rows(connection)

    def _publish(self, rows: EndpointRows, reports: Reports | None, now: float) -> None:
        if reports is None and self._cluster is not None:
            return  # rows do not say on which node an instance is
        before = self._routes.routes
        all_instances = chain.from_iterable(rows.instances.values())
        leaving = leaving_columns(all_instances, before, self._routes.leaving)
        routes = build_routes(
            rows.endpoints.values(),
            rows.instances,
            reports,
            before,
            self._stores,
            reserved=chain.from_iterable(leaving.values()),
        )
        nodes = self._cluster.routes() if self._cluster is not None else None
        if self._routes.publish(routes, leaving=leaving, nodes=nodes):
            self._departures.note(before, routes, now)
            self._on_routes()

    def _plan(
        self, name: str, rows: EndpointRows, reports: Reports | None, now: float
    ) -> EndpointStep:
        of_endpoint = rows.instances.get(name, ())
        return plan(self._facts(rows.endpoints.get(name), of_endpoint, reports, now), self._new_id)

    def _facts(
        self,
        endpoint: EndpointRecord | None,
        of_endpoint: Iterable[InstanceRecord],
        reports: Reports | None,
        now: float,
    ) -> Facts:
        return Facts(
            endpoint=endpoint,
            instances=tuple(of_endpoint),
            reports=reports,
            retries=self._retries,
            busy=self._busy,
            called=self._called,
            drain_seconds=self._draining.seconds,
            leaving=self._cluster.leaving() if self._cluster is not None else frozenset(),
            stores=self._stores,
            uses=self._on_demand.uses(endpoint, self._rows) if self._on_demand else {},
            room=self._room,
            now=now,
        )

    def _step(
        self, name: str, planned: EndpointStep, reports: Reports | None, now: float
    ) -> EndpointStep:
        """Takes a planned step; if it changes rows, plans it again with locked rows."""
        if not planned.writes:
            return planned
        with self._database.write() as connection:
            self._lease.check(connection, now)
            endpoint = endpoints.get_for_update(connection, name)
            of_endpoint = instances.of_endpoint(connection, name)
            step = plan(self._facts(endpoint, of_endpoint, reports, now), self._new_id)
            _write(connection, step)
            if endpoint and step.endpoint and step.endpoint.status is not endpoint.status:
                labels = tags.get(connection, endpoint.arn)
                put_event(connection, endpoint_event(step.endpoint, labels, now))
        if self._on_demand is not None:
            self._on_demand.note_starts(of_endpoint, step, reports)
        # Endpoints share the room.
        self._room = replace(self._room, free_instances=self._room.free_instances - len(step.added))
        _log_step(name, step, endpoint)
        return step


def _warm_images(endpoints: Iterable[EndpointRecord]) -> tuple[str, ...]:
    """Not of endpoints that are created: their first instance proves that the model starts, and
    would share the processors with a fork server."""
    images = {
        container.image
        for endpoint in endpoints
        if endpoint.current is not None and endpoint.status is not EndpointStatus.DELETING
        for variant in endpoint.current.all_variants
        if variant.starts_on_demand
        for container in variant.containers
    }
    return tuple(sorted(images))


def _at_rest(rows: EndpointRows) -> bool:
    return all(endpoint.status in _RESTING for endpoint in rows.endpoints.values()) and all(
        instance.stop_at is None
        and instance.state in (InstanceState.IN_SERVICE, InstanceState.FAILED)
        for group in rows.instances.values()
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
