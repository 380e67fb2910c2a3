"""Builds the gateways' route table from the records and writes it to disk."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import InstanceReport, InstanceState
from sagehen.frame.routes import (
    DEFAULT_SLOTS,
    ContainerAddress,
    ContainerRoute,
    InstanceRoute,
    NodeRoute,
    OnDemandRoute,
    Route,
    RouteTable,
    VariantRoute,
)
from sagehen.frame.s3_locations import parse_location
from sagehen.services.sagemaker.hosting.reconciler.columns import routed_instances, with_columns
from sagehen.services.sagemaker.hosting.reconciler.plan import DELETED_DRAIN_SECONDS, Reports
from sagehen.services.sagemaker.hosting.reconciler.rows import EndpointRows
from sagehen.services.sagemaker.hosting.records import (
    SERVING,
    EndpointRecord,
    InstanceRecord,
    VariantPlan,
)
from sagehen.services.sagemaker.offline_results.stores import NO_STORES, StoreStates, offline_route

__all__ = [
    "Departures",
    "InstanceAddresses",
    "RouteFile",
    "build_routes",
    "route_of",
    "routed_ids",
]

log = logging.getLogger(__name__)


class InstanceAddresses:
    """Finds where instances are reached.

    Args:
        reports: None while the agent is away: then the records count.
    """

    def __init__(self, reports: Reports | None, before: Iterable[InstanceRoute]) -> None:
        self._reports = reports
        self._before = {instance.instance_id: instance for instance in before}

    def find(self, instance: InstanceRecord) -> InstanceRoute | None:
        """Returns a route without columns; None if the instance does not serve."""
        if self._reports is None:
            return self._from_record(instance)
        report = self._reports.get(instance.instance_id)
        if report is None or report.state is not InstanceState.IN_SERVICE:
            return None
        several = len(instance.spec.containers) > 1
        if several and len(report.containers) != len(instance.spec.containers):
            return None
        return _from_report(report)

    def failure_reason(self, instances: Iterable[InstanceRecord]) -> str:
        """Returns why one of these instances, which do not serve, is not started yet."""
        reports = self._reports or {}
        found = (reports.get(each.instance_id) for each in instances)
        return next((each.failure_reason for each in found if each and each.failure_reason), "")

    def _from_record(self, instance: InstanceRecord) -> InstanceRoute | None:
        """Use the record's address; everything else stays as it was."""
        address = instance.address
        if instance.state is not InstanceState.IN_SERVICE or address is None:
            return None
        before = self._before.get(instance.instance_id)
        if before is None or before.address != address:
            if len(instance.spec.containers) > 1:
                return None  # Records do not have the other containers' addresses.
            before = before or InstanceRoute(instance_id=instance.instance_id, address=address)
        return replace(before, address=address)


def _from_report(report: InstanceReport) -> InstanceRoute | None:
    if report.address is None:
        return None
    containers = tuple(
        ContainerAddress(container.address, container.slots or DEFAULT_SLOTS)
        for container in report.containers
    )
    # Requests pass all containers: the smallest limit counts.
    slots = min(
        (container.slots for container in containers), default=report.slots or DEFAULT_SLOTS
    )
    return InstanceRoute(
        instance_id=report.instance_id,
        address=report.address,
        slots=slots,
        run_id=report.run_id,
        containers=containers,
        node_id=report.node_id,
    )


def build_routes(
    endpoints: Iterable[EndpointRecord],
    instances: Mapping[str, tuple[InstanceRecord, ...]],
    reports: Reports | None,
    before: Mapping[str, Route],
    stores: StoreStates = NO_STORES,
    reserved: Iterable[int] = (),
) -> dict[str, Route]:
    """Builds the route of each endpoint that serves, even without instances.

    Args:
        reports: None while the agent is away: then the records count.
        before: the table in force, whose columns are kept.
        reserved: columns of instances that leave.
    """
    addresses = InstanceAddresses(reports, routed_instances(before))
    rows = EndpointRows({endpoint.name: endpoint for endpoint in endpoints}, instances)
    routes = {
        name: route
        for name in rows.endpoints
        if (route := route_of(name, rows, addresses, stores)) is not None
    }
    return with_columns(routes, before, reserved)


def route_of(
    name: str, rows: EndpointRows, addresses: InstanceAddresses, stores: StoreStates
) -> Route | None:
    """Returns an endpoint's route without columns; None while it does not serve."""
    endpoint = rows.endpoints.get(name)
    if endpoint is None or endpoint.status not in SERVING or endpoint.current is None:
        return None
    return _route(endpoint, rows.instances.get(name, ()), addresses, stores)


def _route(
    endpoint: EndpointRecord,
    instances: Sequence[InstanceRecord],
    addresses: InstanceAddresses,
    stores: StoreStates,
) -> Route:
    deployment = endpoint.current
    assert deployment is not None
    of_deployment = [
        instance
        for instance in instances
        if instance.deployment_id == deployment.deployment_id and instance.stop_at is None
    ]
    of_deployment.sort(key=lambda instance: instance.instance_id)

    def route_variant(variant: VariantPlan) -> VariantRoute:
        own = [instance for instance in of_deployment if instance.variant_name == variant.name]
        found = tuple(filter(None, map(addresses.find, own)))
        return VariantRoute(
            name=variant.name,
            weight=variant.weight,
            instances=found,
            strategy=variant.strategy,
            multi_model=variant.multi_model,
            models_url=_models_url(variant),
            containers=_containers(variant),
            mode=variant.mode,
            offline_results=offline_route(deployment.deployment_id, variant, stores),
            on_demand=_on_demand(variant, own),
            not_serving="" if found else addresses.failure_reason(own),
        )

    return Route(
        endpoint_name=endpoint.name,
        variants=tuple(map(route_variant, deployment.variants)),
        shadow=None if deployment.shadow is None else route_variant(deployment.shadow),
        asynchronous=deployment.asynchronous,
    )


def _on_demand(variant: VariantPlan, instances: Iterable[InstanceRecord]) -> OnDemandRoute | None:
    failed = (each for each in instances if each.state is InstanceState.FAILED)
    failure = next((each.failure_reason for each in failed), None)
    if variant.serverless is None:
        # With instances too: those that wait must not fail when others raise the count.
        return OnDemandRoute(start_failure=failure) if variant.scales_from_zero else None
    return OnDemandRoute(
        start_failure=failure,
        max_concurrency=variant.serverless.max_concurrency,
        provisioned_concurrency=variant.serverless.provisioned_concurrency or 0,
    )


def _models_url(variant: VariantPlan) -> str:
    urls = {each.model_data_url for each in variant.containers if each.multi_model}
    url = urls.pop() if len(urls) == 1 else None
    try:
        return parse_location(url).below("").url if url else ""
    except Invalid:
        return ""  # the agent refuses the instance, with the reason


def _containers(variant: VariantPlan) -> tuple[ContainerRoute, ...]:
    if len(variant.containers) == 1:
        return ()
    return tuple(
        ContainerRoute(container.hostname, container.multi_model)
        for container in variant.containers
    )


def routed_ids(routes: Mapping[str, Route]) -> set[str]:
    return {instance.instance_id for instance in routed_instances(routes)}


class Departures:
    """Instances that left the routes a moment ago, so that gateways may still send to them.

    `stop_at` counts from the row's write; if control was killed before publishing, the instance
    stayed in the routes for longer. A new control need not know earlier departures: starting takes
    longer than that.
    """

    def __init__(self) -> None:
        self._left_at: dict[str, float] = {}

    def note(self, before: Mapping[str, Route], after: Mapping[str, Route], now: float) -> None:
        still = routed_ids(after)
        self._left_at = {
            key: at
            for key, at in self._left_at.items()
            if key not in still and 0 <= now - at < DELETED_DRAIN_SECONDS
        }
        self._left_at.update(dict.fromkeys(routed_ids(before) - still, now))

    def settle_at(self, instance_id: str, now: float) -> float | None:
        """Returns when the instance may be stopped; None for now."""
        at = self._left_at.get(instance_id)
        if at is None or not 0 <= now - at < DELETED_DRAIN_SECONDS:
            return None
        return at + DELETED_DRAIN_SECONDS


class RouteFile:
    """The table on disk; one process writes it, any number read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._published = _read(path)
        self._encoded: dict[str, tuple[Route, msgspec.Raw]] = {}
        """each route with its JSON: those that stay are not encoded again"""

    @property
    def routes(self) -> dict[str, Route]:
        return self._published.routes if self._published else {}

    @property
    def leaving(self) -> dict[str, tuple[int, ...]]:
        return self._published.leaving if self._published else {}

    def read_again(self) -> None:
        """Goes on from what another control has sent here meanwhile: its columns are in force."""
        self._published = _read(self._path)

    def publish(
        self, routes: dict[str, Route], leader: str | None = None, leader_address: str | None = None
    ) -> bool:
        """Replaces the table; returns False if nothing changed. The arguments are as those of
        `next_table`."""
        table = self.next_table(routes, leader=leader, leader_address=leader_address)
        if table is not None:
            self.write(table)
        return table is not None

    def next_table(
        self,
        routes: dict[str, Route],
        leader: str | None = None,
        leaving: Mapping[str, tuple[int, ...]] | None = None,
        nodes: Mapping[str, NodeRoute] | None = None,
        leader_address: str | None = None,
    ) -> RouteTable | None:
        """Returns the table to write; None if it would be the one in force.

        Args:
            leader: the other control that works on the endpoints, if any.
            leaving, leader_address: as in RouteTable.
            nodes: all machines of a cluster.
        """
        before = self._published
        version = before.version + 1 if before else 1
        table = RouteTable(
            routes=routes,
            version=version,
            leader=leader,
            leader_address=leader_address,
            leaving=dict(leaving or {}),
            nodes=dict(nodes or {}),
        )
        if before is not None and table == replace(before, version=version):
            return None
        return table

    def write(self, table: RouteTable) -> None:
        """Replaces the table atomically."""
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.write_bytes(self._encode(table))
        os.replace(temporary, self._path)
        self._published = table
        extra = {"action": "publish_routes", "version": table.version}
        log.info("Routes were published.", extra=extra)

    def _encode(self, table: RouteTable) -> bytes:
        before, self._encoded = self._encoded, {}
        for name, route in table.routes.items():
            known = before.get(name)
            if known is None or known[0] is not route:
                known = route, msgspec.Raw(msgspec.json.encode(route))
            self._encoded[name] = known
        values = {name: getattr(table, name) for name in table.__struct_fields__}
        return msgspec.json.encode(
            {**values, "routes": {name: raw for name, (_, raw) in self._encoded.items()}}
        )


def _read(path: Path) -> RouteTable | None:
    """Returns None without a readable table."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RouteTable)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        log.warning("The route table was unreadable and is made anew.", extra={"action": "routes"})
        return None
