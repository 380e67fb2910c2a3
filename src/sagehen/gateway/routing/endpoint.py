"""An endpoint and its variants as this process uses them, in one version of the route table."""

from collections.abc import Iterator, Mapping

from sagehen.frame.routes import VariantRoute
from sagehen.frame.routing import rank_by_affinity
from sagehen.gateway.admission.errors import PRIMARY
from sagehen.gateway.metrics.counters import InFlightCounter, VariantCounters
from sagehen.gateway.routing.concurrency import Concurrency
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.offline_answers import OfflineAnswers
from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["Endpoint", "Variant"]

MAX_CACHED_RANKS = 10_000
"""models per variant with a cached order of instances"""


class Variant:
    """A production or shadow variant in one version of the table.

    If containers are invoked directly, each is a Variant with the same name and weight, and this
    one has no instances.
    """

    __slots__ = (
        "_of_this_node",
        "_ranks",
        "concurrency",
        "counters",
        "direct",
        "hostname",
        "in_flight",
        "instance_share",
        "instances",
        "invoked_field",
        "local",
        "offline",
        "route",
        "slot_queue",
    )

    def __init__(
        self,
        route: VariantRoute,
        instances: tuple[RoutedInstance, ...],
        counters: VariantCounters,
        slot_queue: SlotQueue,
        hostname: str = PRIMARY,
        direct: "Mapping[str, Variant] | None" = None,
        offline: OfflineAnswers | None = None,
        concurrency: Concurrency | None = None,
    ) -> None:
        self.route = route
        self.concurrency = concurrency
        """of a serverless variant"""
        self.in_flight: InFlightCounter | Concurrency = concurrency or counters.in_flight
        self.offline = offline
        """for requests that no instance can answer"""
        self.hostname = hostname
        """of the first container"""
        self.direct = direct
        """containers invoked directly, by hostname"""
        self.instances = instances
        self.local = instances if slot_queue.remote is None else _local(instances)
        """those of this machine"""
        self.instance_share = 1 / len(instances) if instances else 0.0
        """the part that a request adds to InvocationsPerInstance"""
        self.counters = counters
        self.slot_queue = slot_queue
        """has the variant of the current table"""
        self.invoked_field = b"x-Amzn-Invoked-Production-Variant: %b\r\n" % route.name.encode()
        self._ranks: dict[str, list[RoutedInstance]] = {}
        self._of_this_node: Variant | None = None

    def of_this_node(self) -> "Variant":
        """Returns the variant for requests of other nodes, which count them."""
        if self._of_this_node is None:
            unused = VariantCounters(endpoint="", variant=self.route.name)
            own = Variant(self.route, self.local, unused, self.slot_queue, self.hostname)
            self._of_this_node = own
        return self._of_this_node

    def ranked(self, model: str) -> list[RoutedInstance]:
        """Returns the preferred holder of `model` first."""
        ranks = self._ranks.get(model)
        if ranks is None:
            if len(self._ranks) >= MAX_CACHED_RANKS:
                self._ranks.clear()
            order = rank_by_affinity([each.instance_id for each in self.instances], model)
            ranks = self._ranks[model] = [self.instances[index] for index in order]
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

    def queued_variants(self) -> Iterator[Variant]:
        """Yields all variants with a queue."""
        for variant in (*self.variants, *filter(None, (self.shadow,))):
            yield variant
            yield from (variant.direct or {}).values()

    def variant(self, name: str) -> Variant | None:
        for variant in self.variants:
            if variant.route.name == name:
                return variant
        return None


def _local(instances: tuple[RoutedInstance, ...]) -> tuple[RoutedInstance, ...]:
    return tuple(instance for instance in instances if not instance.is_remote)


def _share(weight: float, weights: tuple[float, ...]) -> float:
    total = sum(weights)
    return 1.0 if weight >= total else weight / total
