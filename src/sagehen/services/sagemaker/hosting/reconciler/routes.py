"""The route table: worked out from the records, and put where the gateways look.

Which column of the gateways' board each routed instance has.

Where containers are invoked directly each of them has one, as each has slots of its own.

Where instances are reached: what the agent says of them, or said last.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sagehen.frame.container_specs import InstanceReport, InstanceState
from sagehen.frame.routes import (
    BOARD_COLUMNS,
    DEFAULT_SLOTS,
    ContainerAddress,
    ContainerRoute,
    ExecutionMode,
    InstanceRoute,
    Route,
    RouteTable,
    VariantRoute,
)
from sagehen.services.sagemaker.hosting.reconciler.plan import DELETED_LET_GO_SECONDS, Reports
from sagehen.services.sagemaker.hosting.records import (
    SERVING,
    EndpointRecord,
    InstanceRecord,
    VariantPlan,
)

__all__ = [
    "Departures",
    "InstanceAddresses",
    "RouteFile",
    "assign_columns",
    "build_routes",
    "columns_of",
    "routed_ids",
    "with_columns",
]

log = logging.getLogger(__name__)


def assign_columns(wanted: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
    """A column for each of `wanted`; those beyond the board's last get none.

    Args:
        before: the columns of the table in force. Who stays routed keeps its own; those of who
            leaves are free again.
    """
    wanted = list(dict.fromkeys(wanted))
    columns = {one: before[one] for one in wanted if one in before}
    taken = set(columns.values())
    free = (column for column in range(BOARD_COLUMNS) if column not in taken)
    columns.update(zip((one for one in wanted if one not in columns), free, strict=False))
    return columns


def columns_of(routes: Mapping[str, Route]) -> dict[str, int]:
    """The columns in a table: by instance id, or by `instance id/hostname`."""
    return {
        key: column
        for route in routes.values()
        for key, column in _held(route)
        if column is not None
    }


def with_columns(routes: Mapping[str, Route], before: Mapping[str, Route]) -> dict[str, Route]:
    """`routes` with a column for each that needs one; `before` is the table in force."""
    wanted = sorted(key for route in routes.values() for key, _ in _held(route))
    columns = assign_columns(wanted, columns_of(before))
    return {name: _placed(route, columns) for name, route in routes.items()}


def _held(route: Route) -> Iterator[tuple[str, int | None]]:
    """Who is to have a column, and the one that it has."""
    for variant in route.all_variants:
        for one in variant.instances:
            keys = _keys(variant, one)
            if keys:
                yield from zip(keys, (own.board_column for own in one.containers), strict=True)
            else:
                yield one.instance_id, one.board_column


def _keys(variant: VariantRoute, instance: InstanceRoute) -> list[str]:
    """Of its containers, where each is invoked for itself."""
    if variant.mode is not ExecutionMode.DIRECT:
        return []
    return [f"{instance.instance_id}/{container.hostname}" for container in variant.containers]


def _placed(route: Route, columns: Mapping[str, int]) -> Route:
    def placed(variant: VariantRoute) -> VariantRoute:
        instances = tuple(_with(one, _keys(variant, one), columns) for one in variant.instances)
        return replace(variant, instances=instances)

    return replace(
        route,
        variants=tuple(map(placed, route.variants)),
        shadow=None if route.shadow is None else placed(route.shadow),
    )


def _with(instance: InstanceRoute, keys: list[str], columns: Mapping[str, int]) -> InstanceRoute:
    if not keys:
        return replace(instance, board_column=columns.get(instance.instance_id))
    containers = tuple(
        replace(one, board_column=columns.get(key))
        for key, one in zip(keys, instance.containers, strict=True)
    )
    return replace(instance, board_column=None, containers=containers)


class InstanceAddresses:
    """
    Args:
        reports: what the agent says now; where it is None, the records' last word counts.
        before: the instances of the table in force.
    """

    def __init__(self, reports: Reports | None, before: Iterable[InstanceRoute]) -> None:
        self._reports = reports
        self._before = {one.instance_id: one for one in before}

    def find(self, instance: InstanceRecord) -> InstanceRoute | None:
        """Without columns of the board; None where it does not serve."""
        if self._reports is None:
            return self._as_before(instance)
        report = self._reports.get(instance.instance_id)
        if report is None or report.state is not InstanceState.IN_SERVICE:
            return None
        several = len(instance.spec.containers) > 1
        if several and len(report.containers) != len(instance.spec.containers):
            return None
        return _as_reported(report)

    def _as_before(self, instance: InstanceRecord) -> InstanceRoute | None:
        """The address is the record's; what the agent said besides stays while it is away."""
        address = instance.address
        if instance.state is not InstanceState.IN_SERVICE or address is None:
            return None
        before = self._before.get(instance.instance_id)
        if before is None or before.address != address:
            if len(instance.spec.containers) > 1:
                return None  # A record does not say where the other containers are.
            before = before or InstanceRoute(instance_id=instance.instance_id, address=address)
        return replace(before, address=address)


def _as_reported(report: InstanceReport) -> InstanceRoute | None:
    if report.address is None:
        return None
    containers = tuple(
        ContainerAddress(one.address, one.slots or DEFAULT_SLOTS) for one in report.containers
    )
    # What goes through all of them can be no more at once than the slowest of them takes.
    slots = min((one.slots for one in containers), default=report.slots or DEFAULT_SLOTS)
    return InstanceRoute(
        instance_id=report.instance_id,
        address=report.address,
        slots=slots,
        run_id=report.run_id,
        containers=containers,
    )


def build_routes(
    endpoints: Iterable[EndpointRecord],
    instances: Mapping[str, Sequence[InstanceRecord]],
    reports: Reports | None,
    before: Mapping[str, Route],
) -> dict[str, Route]:
    """What each endpoint that serves is reached by.

    An endpoint whose instances are all away keeps its route, with no instances in it.

    Args:
        instances: by endpoint name.
        reports: what the agent says now; where it is None, the records' last word counts.
        before: the table in force, whose instances keep their columns of the board.
    """
    places = InstanceAddresses(reports, _routed(before))
    routes = {
        endpoint.name: _route(endpoint, instances.get(endpoint.name, ()), places)
        for endpoint in endpoints
        if endpoint.status in SERVING and endpoint.current is not None
    }
    return with_columns(routes, before)


def _route(
    endpoint: EndpointRecord, instances: Sequence[InstanceRecord], places: InstanceAddresses
) -> Route:
    deployment = endpoint.current
    assert deployment is not None
    mine = [
        one
        for one in instances
        if one.deployment_id == deployment.deployment_id and one.stop_at is None
    ]
    mine.sort(key=lambda one: one.instance_id)

    def routed(variant: VariantPlan) -> VariantRoute:
        found = (places.find(one) for one in mine if one.variant_name == variant.name)
        return VariantRoute(
            name=variant.name,
            weight=variant.weight,
            instances=tuple(one for one in found if one is not None),
            strategy=variant.strategy,
            multi_model=variant.multi_model,
            containers=_containers(variant),
            mode=variant.mode,
        )

    return Route(
        endpoint_name=endpoint.name,
        variants=tuple(map(routed, deployment.variants)),
        shadow=None if deployment.shadow is None else routed(deployment.shadow),
        asynchronous=deployment.asynchronous,
    )


def _containers(variant: VariantPlan) -> tuple[ContainerRoute, ...]:
    if len(variant.containers) == 1:
        return ()
    return tuple(ContainerRoute(one.hostname, one.multi_model) for one in variant.containers)


def routed_ids(routes: Mapping[str, Route]) -> set[str]:
    """The ids of all instances in a table."""
    return {one.instance_id for one in _routed(routes)}


def _routed(routes: Mapping[str, Route]) -> Iterator[InstanceRoute]:
    for route in routes.values():
        for variant in route.all_variants:
            yield from variant.instances


class Departures:
    """Which instances left the routes a moment ago, so that gateways may still send to them.

    The rows' `stop_at` is reckoned from the write that retires an instance. A control killed
    between that and the publishing leaves an instance in the routes for longer. (The next control
    need not know what left before it began: a process takes longer than that to start.)
    """

    def __init__(self) -> None:
        self._left_at: dict[str, float] = {}

    def note(self, before: Mapping[str, Route], after: Mapping[str, Route], now: float) -> None:
        """The table `before` was replaced by `after`."""
        still = routed_ids(after)
        self._left_at = {
            key: at
            for key, at in self._left_at.items()
            if key not in still and 0 <= now - at < DELETED_LET_GO_SECONDS
        }
        self._left_at.update(dict.fromkeys(routed_ids(before) - still, now))

    def settle_at(self, instance_id: str, now: float) -> float | None:
        """When the instance may be stopped; None where it may be now."""
        at = self._left_at.get(instance_id)
        if at is None or not 0 <= now - at < DELETED_LET_GO_SECONDS:
            return None
        return at + DELETED_LET_GO_SECONDS


class RouteFile:
    """The table on disk. One process at a time writes it; any number read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._published = _read(path)

    @property
    def routes(self) -> dict[str, Route]:
        """What is there now."""
        return self._published.routes if self._published else {}

    def publish(self, routes: dict[str, Route], leader: str | None = None) -> bool:
        """Put `routes` in place of what is there, at once and whole; False where they are equal.

        Args:
            leader: the control that works on the endpoints, where it is not this one.
        """
        before = self._published
        if before is not None and (before.routes, before.leader) == (routes, leader):
            return False
        version = before.version + 1 if before else 1
        table = RouteTable(routes=routes, version=version, leader=leader)
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_bytes(msgspec.json.encode(table))
        os.replace(beside, self._path)
        self._published = table
        log.info("Routes were published.", extra={"action": "publish_routes", "version": version})
        return True


def _read(path: Path) -> RouteTable | None:
    """What an earlier control left there; None where that is nothing of use."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RouteTable)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        log.warning("The route table was unreadable and is made anew.", extra={"action": "routes"})
        return None
