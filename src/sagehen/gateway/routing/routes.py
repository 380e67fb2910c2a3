"""The route table as this process uses it, with connections to instances."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from sagehen.base.clock import Clock
from sagehen.frame.routes import (
    ExecutionMode,
    InstanceRoute,
    OfflineRoute,
    Route,
    RouteFileReader,
    RouteTable,
    VariantRoute,
)
from sagehen.gateway.admission.errors import PRIMARY
from sagehen.gateway.metrics.counters import Counters
from sagehen.gateway.peers.messages import PeerRoute
from sagehen.gateway.peers.nodes import Peers
from sagehen.gateway.routing.concurrency import Concurrency
from sagehen.gateway.routing.endpoint import Endpoint, Variant
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.instance import RoutedInstance, Stage
from sagehen.gateway.routing.offline_answers import OfflineStores
from sagehen.gateway.routing.slot_queue import SlotQueue
from sagehen.gateway.routing.starts import Starts
from sagehen.link.upstream import Upstreams, open_upstreams

__all__ = ["Routes"]

_InstanceKey = tuple[str, str, tuple[str, ...], int | None]
"""(id, run, addresses, column in the in-flight table)"""
_QueueKey = tuple[str, str, str, bool]
"""(endpoint, variant, container invoked directly, is a shadow); the last separates copies from the
production variant that their shadow may become"""


_VariantKey = tuple[str, str]
"""endpoint and variant"""


@dataclass
class _Parts:
    """The keys of the objects of one endpoint."""

    instances: set[_InstanceKey] = field(default_factory=set)
    queues: set[_QueueKey] = field(default_factory=set)
    concurrencies: set[_VariantKey] = field(default_factory=set)


class Routes:
    """Follows the route file; the last table read stays in force.

    A new table costs what has changed: with a thousand endpoints, to make everything anew would
    keep all requests waiting for tens of milliseconds.
    """

    def __init__(
        self,
        file: Path,
        counters: Counters,
        clock: Clock,
        inflight: InflightTable,
        offline: OfflineStores,
        starts: Starts | None = None,
        peers: Peers | None = None,
        follow_leader: Callable[[str | None], None] = lambda address: None,
    ) -> None:
        self._follow_leader = follow_leader
        self._starts = starts
        """where calls may start instances"""
        self._peers = peers
        """on a node of a cluster"""
        self._file = RouteFileReader(file, clock)
        self._counters = counters
        self._clock = clock
        self._inflight = inflight
        self._offline = offline
        self.version = 0
        """grows with each new table"""
        self._applied = self._file.table
        self._endpoints: dict[str, Endpoint] = {}
        self._parts: dict[str, _Parts] = {}
        self._instances: dict[_InstanceKey, RoutedInstance] = {}
        self._queues: dict[_QueueKey, SlotQueue] = {}
        self._concurrencies: dict[_VariantKey, Concurrency] = {}
        self._leaving: list[RoutedInstance] = []
        """removed from the table, and counted in their columns until control has seen them end"""
        self._retired: list[Upstreams] = []

    def get(self, endpoint_name: str) -> Endpoint | None:
        self._apply_if(self._file.refresh_if_old())
        return self._endpoints.get(endpoint_name)

    @property
    def are_known(self) -> bool:
        """Whether control's route file was ever read."""
        return self._file.is_read

    @property
    def leader(self) -> str | None:
        """Another server that serves the endpoints."""
        return self._file.table.leader

    def instances(self) -> Iterable[RoutedInstance]:
        return self._instances.values()

    def upstreams(self) -> list[Upstreams]:
        """Includes removed instances that still have requests."""
        serving = (
            upstreams
            for instance in self._instances.values()
            for upstreams in instance.all_upstreams
        )
        return [*serving, *self._retired]

    @property
    def queued(self) -> int:
        return sum(queue.length for queue in self._queues.values())

    def refresh(self) -> bool:
        """Returns whether there is a new table."""
        return self._apply_if(self._file.refresh())

    def _apply_if(self, changed: bool) -> bool:
        if changed:
            self._apply(self._file.table)
        return changed

    def _apply(self, table: RouteTable) -> None:
        self.version += 1
        self._follow_leader(table.leader_address)
        self._offline.update(_offline_routes(table))
        if self._peers is not None:
            self._peers.update(table.nodes)
        names = _changed(self._applied, table)
        self._applied = table
        parts = [self._parts.pop(name) for name in names if name in self._parts]
        old_instances = {key: self._instances.pop(key) for one in parts for key in one.instances}
        old_queues = {key: self._queues.pop(key) for one in parts for key in one.queues}
        routes = {name: table.routes[name] for name in names if name in table.routes}
        self._parts.update((name, _Parts()) for name in routes)
        self._update_concurrencies(routes, parts)
        for name in names:
            self._endpoints.pop(name, None)
        changed = {
            name: self._endpoint(name, route, old_instances, old_queues)
            for name, route in routes.items()
            if route.variants
        }
        self._endpoints.update(changed)
        if parts:
            self._counters.keep_only(
                {
                    (name, variant.name)
                    for name, route in table.routes.items()
                    for variant in route.all_variants
                }
            )
        self._retired = [each for each in self._retired if not each.is_done]
        for key, instance in old_instances.items():
            if key not in self._instances:
                instance.retire()
                self._leaving.append(instance)
                self._retired.extend(instance.all_upstreams)
        self._free_columns(table)
        for endpoint in changed.values():
            for variant in endpoint.queued_variants():
                variant.slot_queue.update(variant)
        for queue_key, queue in old_queues.items():
            if queue_key not in self._queues:
                queue.close()
                # Its queue keeps the variant until the next garbage collection, and so the file.
                queue.variant.offline = None

    def _endpoint(
        self,
        name: str,
        route: Route,
        old_instances: dict[_InstanceKey, RoutedInstance],
        old_queues: dict[_QueueKey, SlotQueue],
    ) -> Endpoint:
        variants = [
            self._variant(name, variant, old_instances, old_queues) for variant in route.variants
        ]
        shadow = None
        if route.shadow is not None:
            shadow = self._variant(name, route.shadow, old_instances, old_queues, True)
        return Endpoint(name, tuple(variants), shadow, route.asynchronous is not None)

    def _free_columns(self, table: RouteTable) -> None:
        leaving, self._leaving = self._leaving, []
        for instance in leaving:
            if instance.column in table.leaving.get(instance.instance_id, ()):
                self._leaving.append(instance)
            else:
                instance.leave_column()

    def _variant(
        self,
        endpoint: str,
        route: VariantRoute,
        old_instances: dict[_InstanceKey, RoutedInstance],
        old_queues: dict[_QueueKey, SlotQueue],
        is_shadow: bool = False,
    ) -> Variant:
        if route.mode is not ExecutionMode.DIRECT or not route.containers:
            return self._make_variant(endpoint, route, "", old_instances, old_queues, is_shadow)
        direct = {
            container.hostname: self._make_variant(
                endpoint,
                _container_route(route, index),
                container.hostname,
                old_instances,
                old_queues,
            )
            for index, container in enumerate(route.containers)
        }
        without_instances = replace(route, instances=())
        return self._make_variant(
            endpoint, without_instances, "", old_instances, old_queues, is_shadow, direct
        )

    def _make_variant(
        self,
        endpoint: str,
        route: VariantRoute,
        container: str,
        old_instances: dict[_InstanceKey, RoutedInstance],
        old_queues: dict[_QueueKey, SlotQueue],
        is_shadow: bool = False,
        direct: Mapping[str, Variant] | None = None,
    ) -> Variant:
        """Makes a variant, or the variant that stands for one `container` of it."""
        instances = []
        parts = self._parts[endpoint]
        for instance_route in route.instances:
            if self._peers is not None and self._peers.is_remote(instance_route):
                continue
            key = _instance_key(instance_route)
            instance = self._instances.get(key) or old_instances.get(key)
            instance = instance or self._instance(endpoint, route, instance_route, container)
            # Only slots may have changed.
            instance.update_slots(instance_route.slots)
            self._instances[key] = instance
            parts.instances.add(key)
            instances.append(instance)
        queue_key = (endpoint, route.name, container, is_shadow)
        queue = old_queues.get(queue_key) or SlotQueue(self._inflight)
        queue.endpoint = endpoint
        queue.starts = None if route.on_demand is None or is_shadow else self._starts
        if instances:
            queue.start_failure = None
        elif route.on_demand is not None and route.on_demand.start_failure is not None:
            # Kept while the instance is tried again.
            queue.start_failure = route.on_demand.start_failure
        self._queues[queue_key] = queue
        parts.queues.add(queue_key)
        if self._peers is not None:
            peer_route = PeerRoute(endpoint, route.name, container, is_shadow)
            for remote in self._peers.instances(route.instances, peer_route, queue):
                self._instances[remote.key] = remote
                parts.instances.add(remote.key)
                instances.append(remote)
        counters = self._counters.variant(endpoint, route.name, container)
        first = container or next((each.hostname for each in route.containers), PRIMARY)
        offline = self._offline.get(route.offline_results)
        concurrency = self._concurrencies.get((endpoint, route.name))
        return Variant(
            route, tuple(instances), counters, queue, first, direct, offline, concurrency
        )

    def _update_concurrencies(
        self, routes: Mapping[str, Route], old_parts: Iterable[_Parts]
    ) -> None:
        """Keeps the counts of serverless variants that stay."""
        keys = [key for parts in old_parts for key in parts.concurrencies]
        before = {key: self._concurrencies.pop(key) for key in keys}
        for name, route in routes.items():
            for variant in route.variants:
                if variant.on_demand is None or variant.on_demand.max_concurrency is None:
                    continue
                key = (name, variant.name)
                counters = self._counters.variant(*key)
                concurrency = before.pop(key, None) or Concurrency(
                    counters, self._inflight, self._counters.limit_hits
                )
                concurrency.update(variant.on_demand)
                self._concurrencies[key] = concurrency
                self._parts[name].concurrencies.add(key)
        for gone in before.values():
            gone.retire()

    def _instance(
        self, endpoint: str, route: VariantRoute, instance_route: InstanceRoute, container: str
    ) -> RoutedInstance:
        stages = tuple(
            Stage(
                container_route.hostname,
                open_upstreams(address.address, self._clock),
                container_route.multi_model,
                self._counters.variant(
                    endpoint, route.name, container_route.hostname, is_stage=True
                ),
            )
            for container_route, address in zip(
                route.containers, instance_route.containers, strict=False
            )
        )
        return RoutedInstance(instance_route, self._clock, self._inflight, container, stages)


def _changed(before: RouteTable, after: RouteTable) -> set[str]:
    """Returns the endpoints that must be made anew, or are gone."""
    old, new = before.routes, after.routes
    if before.nodes != after.nodes:
        return {*old, *new}
    names = {name for name, route in new.items() if old.get(name) is not route}
    # A store that could not be opened is tried again.
    names.update(
        name
        for name, route in new.items()
        if any(variant.offline_results is not None for variant in route.variants)
    )
    return names | (old.keys() - new.keys())


def _offline_routes(table: RouteTable) -> Iterator[OfflineRoute]:
    for route in table.routes.values():
        for variant in route.variants:
            if variant.offline_results is not None:
                yield variant.offline_results


def _instance_key(route: InstanceRoute) -> _InstanceKey:
    addresses = tuple(each.address for each in route.containers) or (route.address,)
    return route.instance_id, route.run_id, addresses, route.inflight_column


def _container_route(route: VariantRoute, index: int) -> VariantRoute:
    """Makes a route to one container only."""
    instances = tuple(
        replace(
            instance,
            address=instance.containers[index].address,
            slots=instance.containers[index].slots,
            inflight_column=instance.containers[index].inflight_column,
            containers=(),
        )
        for instance in route.instances
    )
    multi_model = route.containers[index].multi_model
    return replace(route, instances=instances, multi_model=multi_model, containers=())
