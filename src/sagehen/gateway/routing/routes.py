"""The route table as this process uses it, with connections to instances."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from sagehen.base.clock import Clock
from sagehen.frame.routes import (
    ExecutionMode,
    InstanceRoute,
    RouteFileReader,
    RouteTable,
    VariantRoute,
)
from sagehen.frame.routing import rank_by_affinity
from sagehen.gateway.admission.errors import PRIMARY
from sagehen.gateway.container.pool import Pool
from sagehen.gateway.metrics.counters import Counters, VariantCounters
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.instance import RoutedInstance, Stage
from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["Endpoint", "Routes", "Variant"]

RANKS_KEPT = 10_000
"""models per variant with a cached order of instances"""

_InstanceKey = tuple[str, str, tuple[str, ...], int | None]
"""(id, run, addresses, column in the in-flight table)"""
_LineKey = tuple[str, str, str, bool]
"""(endpoint, variant, container invoked directly, is a shadow); the last separates copies from the
production variant that their shadow may become"""


class Variant:
    """A production or shadow variant in one version of the table.

    If containers are invoked directly, each is a Variant with the same name and weight, and this
    one has no instances.
    """

    __slots__ = (
        "_ranks",
        "counters",
        "direct",
        "hostname",
        "instance_share",
        "instances",
        "invoked_field",
        "line",
        "route",
    )

    def __init__(
        self,
        route: VariantRoute,
        instances: tuple[RoutedInstance, ...],
        counters: VariantCounters,
        line: SlotQueue,
        hostname: str = PRIMARY,
        direct: "Mapping[str, Variant] | None" = None,
    ) -> None:
        self.route = route
        self.hostname = hostname
        """of the first container"""
        self.direct = direct
        """containers invoked directly, by hostname"""
        self.instances = instances
        self.instance_share = 1 / len(instances) if instances else 0.0
        """what a request adds to InvocationsPerInstance"""
        self.counters = counters
        self.line = line
        """knows the variant of the current table"""
        self.invoked_field = b"x-Amzn-Invoked-Production-Variant: %b\r\n" % route.name.encode()
        self._ranks: dict[str, list[RoutedInstance]] = {}

    def ranked(self, model: str) -> list[RoutedInstance]:
        """Returns the preferred holder of `model` first."""
        ranks = self._ranks.get(model)
        if ranks is None:
            if len(self._ranks) >= RANKS_KEPT:
                self._ranks.clear()
            order = rank_by_affinity([one.instance_id for one in self.instances], model)
            ranks = self._ranks[model] = [self.instances[place] for place in order]
        return ranks


class Endpoint:
    """An endpoint in one version of the table."""

    __slots__ = ("is_asynchronous", "name", "shadow", "shadow_share", "variants", "weights")

    def __init__(
        self,
        name: str,
        variants: tuple[Variant, ...],
        shadow: Variant | None = None,
        is_asynchronous: bool = False,
    ) -> None:
        self.name = name
        self.is_asynchronous = is_asynchronous
        """handled by control"""
        self.variants = variants
        self.weights = tuple(variant.route.weight for variant in variants)
        self.shadow = shadow
        """gets copies; cannot be a target variant"""
        self.shadow_share = 0.0 if shadow is None else _share(shadow.route.weight, self.weights)
        """share of requests that are copied"""

    def lined_up(self) -> Iterator[Variant]:
        """Yields all variants with a queue."""
        for variant in (*self.variants, *filter(None, (self.shadow,))):
            yield variant
            yield from (variant.direct or {}).values()

    def variant(self, name: str) -> Variant | None:
        for variant in self.variants:
            if variant.route.name == name:
                return variant
        return None


class Routes:
    """Follows the route file; the last table read stays in force."""

    def __init__(self, file: Path, counters: Counters, clock: Clock, board: InflightTable) -> None:
        self._file = RouteFileReader(file, clock)
        self._counters = counters
        self._clock = clock
        self._board = board
        self.version = 0
        """grows with each new table"""
        self._endpoints: dict[str, Endpoint] = {}
        self._instances: dict[_InstanceKey, RoutedInstance] = {}
        self._lines: dict[_LineKey, SlotQueue] = {}
        self._leaving: list[Pool] = []

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

    def pools(self) -> list[Pool]:
        """Includes removed instances that still have requests."""
        serving = (pool for one in self._instances.values() for pool in one.pools)
        return [*serving, *self._leaving]

    @property
    def queued(self) -> int:
        return sum(line.length for line in self._lines.values())

    def refresh(self) -> bool:
        """Returns whether there is a new table."""
        return self._apply_if(self._file.refresh())

    def _apply_if(self, changed: bool) -> bool:
        if changed:
            self._apply(self._file.table)
        return changed

    def _apply(self, table: RouteTable) -> None:
        self.version += 1
        before, self._instances = self._instances, {}
        lines, self._lines = self._lines, {}
        self._endpoints = {
            name: Endpoint(
                name,
                tuple(self._variant(name, variant, before, lines) for variant in route.variants),
                self._variant(name, route.shadow, before, lines, True) if route.shadow else None,
                route.asynchronous is not None,
            )
            for name, route in table.routes.items()
            if route.variants
        }
        self._counters.keep_only(
            {(name, one.name) for name, route in table.routes.items() for one in route.all_variants}
        )
        self._leaving = [pool for pool in self._leaving if not pool.is_done]
        for key, instance in before.items():
            if key not in self._instances:
                instance.leave()
                self._leaving.extend(instance.pools)
        for endpoint in self._endpoints.values():
            for variant in endpoint.lined_up():
                variant.line.follow(variant)
        for line_key, line in lines.items():
            if line_key not in self._lines:
                line.end()

    def _variant(
        self,
        endpoint: str,
        route: VariantRoute,
        before: dict[_InstanceKey, RoutedInstance],
        lines: dict[_LineKey, SlotQueue],
        is_shadow: bool = False,
    ) -> Variant:
        if route.mode is not ExecutionMode.DIRECT or not route.containers:
            return self._one(endpoint, route, "", before, lines, is_shadow)
        direct = {
            container.hostname: self._one(
                endpoint, _alone(route, number), container.hostname, before, lines
            )
            for number, container in enumerate(route.containers)
        }
        none = replace(route, instances=())
        return self._one(endpoint, none, "", before, lines, is_shadow, direct)

    def _one(
        self,
        endpoint: str,
        route: VariantRoute,
        container: str,
        before: dict[_InstanceKey, RoutedInstance],
        lines: dict[_LineKey, SlotQueue],
        is_shadow: bool = False,
        direct: Mapping[str, Variant] | None = None,
    ) -> Variant:
        """For a variant or one container of it."""
        instances = []
        for place in route.instances:
            addresses = tuple(one.address for one in place.containers) or (place.address,)
            key = (place.instance_id, place.run_id, addresses, place.board_column)
            instance = self._instances.get(key) or before.get(key)
            instance = instance or self._instance(endpoint, route, place, container)
            # Only slots may have changed.
            instance.slots = max(1, place.slots)
            self._instances[key] = instance
            instances.append(instance)
        line_key = (endpoint, route.name, container, is_shadow)
        line = self._lines[line_key] = lines.get(line_key) or SlotQueue(self._board)
        counters = self._counters.of(endpoint, route.name, container)
        first = container or next((one.hostname for one in route.containers), PRIMARY)
        return Variant(route, tuple(instances), counters, line, first, direct)

    def _instance(
        self, endpoint: str, route: VariantRoute, place: InstanceRoute, container: str
    ) -> RoutedInstance:
        stages = tuple(
            Stage(
                each.hostname,
                Pool(at.address, self._clock),
                each.multi_model,
                self._counters.of(endpoint, route.name, each.hostname, is_stage=True),
            )
            for each, at in zip(route.containers, place.containers, strict=False)
        )
        return RoutedInstance(place, self._clock, self._board, container, stages)


def _alone(route: VariantRoute, number: int) -> VariantRoute:
    """Makes a route to one container only."""
    instances = tuple(
        replace(
            one,
            address=one.containers[number].address,
            slots=one.containers[number].slots,
            board_column=one.containers[number].board_column,
            containers=(),
        )
        for one in route.instances
    )
    multi_model = route.containers[number].multi_model
    return replace(route, instances=instances, multi_model=multi_model, containers=())


def _share(weight: float, weights: tuple[float, ...]) -> float:
    total = sum(weights)
    return 1.0 if weight >= total else weight / total
