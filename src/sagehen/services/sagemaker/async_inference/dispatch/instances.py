"""The instances that asynchronous requests may be sent to, and their free slots."""

from collections.abc import Mapping, Sequence

from sagehen.base.clock import Clock
from sagehen.base.retry import Backoff
from sagehen.frame.container_relay import locate
from sagehen.frame.routes import InstanceRoute, Route, RouteFileReader, VariantRoute
from sagehen.frame.routing import Random, choose_free, choose_variant

__all__ = ["RoutedContainer", "RoutedContainers"]

FIRST_REST_SECONDS = 0.25
LONGEST_REST_SECONDS = 5.0


class RoutedContainer:
    """One run of one instance; the same object for as long as it is routed."""

    def __init__(self, route: InstanceRoute, address: str, endpoint_name: str) -> None:
        self.endpoint_name = endpoint_name
        self.instance_id = route.instance_id
        self.run_id = route.run_id
        self.address = address
        """as this machine reaches it"""
        self.variant_name = ""
        self.slots = 1
        self.outstanding = 0
        self.rests_until = 0.0
        """monotonic; after a refusal"""
        self._backoff = Backoff(FIRST_REST_SECONDS, LONGEST_REST_SECONDS)

    @property
    def is_free(self) -> bool:
        return self.outstanding < self.slots

    @property
    def free(self) -> int:
        return max(0, self.slots - self.outstanding)

    def refused(self, now: float) -> None:
        """Let the instance rest: it did not begin its request."""
        self.rests_until = now + self._backoff.next_seconds()

    def answered(self) -> None:
        self._backoff.reset()


class RoutedContainers:
    """Tracks the routed instances of asynchronous endpoints.

    Args:
        default_concurrency: requests per instance, if neither config nor container says less.
        own_node_id: as of `locate`.
    """

    def __init__(
        self,
        routes: RouteFileReader,
        clock: Clock,
        default_concurrency: int,
        random: Random,
        own_node_id: str = "",
    ) -> None:
        self._own_node_id = own_node_id
        self._routes = routes
        self._clock = clock
        self._default = default_concurrency
        self._random = random
        self._variants: dict[str, list[tuple[VariantRoute, list[RoutedContainer]]]] = {}
        self._containers: dict[tuple[str, str, str], RoutedContainer] = {}
        self._left: set[RoutedContainer] = set()
        """Instances that left the routes but still work."""
        self._read = False

    def refresh(self) -> bool:
        if not self._routes.refresh() and self._read:
            return False
        self._read = True
        routes = {
            name: route
            for name, route in self._routes.table.routes.items()
            if route.asynchronous is not None
        }
        before, self._containers = self._containers, {}
        self._variants = {name: self._merge(route, before) for name, route in routes.items()}
        gone = (container for key, container in before.items() if key not in self._containers)
        self._left.update(container for container in gone if container.outstanding)
        return True

    def _merge(
        self, route: Route, before: Mapping[tuple[str, str, str], RoutedContainer]
    ) -> list[tuple[VariantRoute, list[RoutedContainer]]]:
        assert route.asynchronous is not None
        max_concurrency = route.asynchronous.max_concurrency
        routed = []
        for variant in route.variants:
            containers = []
            for instance in variant.instances:
                address = locate(
                    instance.address, self._own_node_id, instance.node_id, instance.instance_id
                )
                key = (instance.instance_id, instance.run_id, address)
                container = before.get(key) or RoutedContainer(
                    instance, address, route.endpoint_name
                )
                container.variant_name = variant.name
                container.slots = max_concurrency or max(1, min(instance.slots, self._default))
                self._containers[key] = container
                containers.append(container)
            routed.append((variant, containers))
        return routed

    @property
    def endpoint_names(self) -> set[str]:
        return set(self._variants)

    @property
    def addresses(self) -> set[str]:
        return {container.address for container in (*self._containers.values(), *self._left)}

    def first_variant(self, endpoint_name: str) -> str | None:
        """Returns the variant for the metrics of a request that reached none."""
        variants = self._variants.get(endpoint_name)
        return variants[0][0].name if variants else None

    def free(self, endpoint_name: str) -> int:
        return sum(
            container.free
            for _, containers in self._available(endpoint_name)
            for container in containers
        )

    def acquire(self, endpoint_name: str) -> RoutedContainer | None:
        """Takes a slot until `release`: the variant by weight, the instance by strategy."""
        variants = [
            pair
            for pair in self._available(endpoint_name)
            if any(container.is_free for container in pair[1])
        ]
        if not variants:
            return None
        chosen = choose_variant([variant.weight for variant, _ in variants], self._random)
        variant, containers = variants[chosen]
        container = choose_free(containers, variant.strategy, self._random)
        if container is not None:
            container.outstanding += 1
        return container

    def release(self, container: RoutedContainer) -> None:
        container.outstanding -= 1
        if not container.outstanding:
            self._left.discard(container)

    def wake_at(self) -> float | None:
        """Returns when the next instance stops resting (monotonic)."""
        now = self._clock.monotonic()
        times = [
            container.rests_until
            for container in self._containers.values()
            if container.rests_until > now
        ]
        return min(times, default=None)

    @property
    def busy(self) -> frozenset[str]:
        containers = (*self._containers.values(), *self._left)
        return frozenset(container.instance_id for container in containers if container.outstanding)

    def _available(
        self, endpoint_name: str
    ) -> Sequence[tuple[VariantRoute, list[RoutedContainer]]]:
        variants = self._variants.get(endpoint_name, ())
        # As in the gateway: if all weights are 0, the chances are equal.
        weighted = [variant for variant in variants if variant[0].weight > 0] or variants
        now = self._clock.monotonic()
        return [
            (variant, [container for container in containers if container.rests_until <= now])
            for variant, containers in weighted
        ]
