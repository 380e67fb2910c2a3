"""The instances that asynchronous requests may be sent to, and their free slots."""

from collections.abc import Mapping, Sequence

from sagehen.base.clock import Clock
from sagehen.frame.routes import InstanceRoute, Route, RouteFileReader, VariantRoute
from sagehen.frame.routing import Random, choose_free, choose_variant

__all__ = ["RoutedContainer", "RoutedContainers"]

FIRST_REST_SECONDS = 0.25
LONGEST_REST_SECONDS = 5.0


class RoutedContainer:
    """One run of one instance; the same object for as long as it is routed."""

    def __init__(self, route: InstanceRoute, endpoint_name: str) -> None:
        self.endpoint_name = endpoint_name
        self.instance_id = route.instance_id
        self.run_id = route.run_id
        self.address = route.address
        self.variant_name = ""
        self.slots = 1
        self.outstanding = 0
        self.rests_until = 0.0
        """monotonic; after a refusal"""
        self._refusals = 0

    @property
    def is_free(self) -> bool:
        return self.outstanding < self.slots

    @property
    def free(self) -> int:
        return max(0, self.slots - self.outstanding)

    def refused(self, now: float) -> None:
        """Let the instance rest: it did not begin its request."""
        seconds = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(self._refusals, 10))
        self._refusals += 1
        self.rests_until = now + seconds

    def answered(self) -> None:
        self._refusals = 0


class RoutedContainers:
    """Tracks the routed instances of asynchronous endpoints.

    Args:
        default_concurrency: requests per instance, if neither config nor container says less.
    """

    def __init__(
        self, routes: RouteFileReader, clock: Clock, default_concurrency: int, random: Random
    ) -> None:
        self._routes = routes
        self._clock = clock
        self._default = default_concurrency
        self._random = random
        self._variants: dict[str, list[tuple[VariantRoute, list[RoutedContainer]]]] = {}
        self._places: dict[tuple[str, str, str], RoutedContainer] = {}
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
        before, self._places = self._places, {}
        self._variants = {name: self._take_in(route, before) for name, route in routes.items()}
        gone = (place for key, place in before.items() if key not in self._places)
        self._left.update(place for place in gone if place.outstanding)
        return True

    def _take_in(
        self, route: Route, before: Mapping[tuple[str, str, str], RoutedContainer]
    ) -> list[tuple[VariantRoute, list[RoutedContainer]]]:
        assert route.asynchronous is not None
        most = route.asynchronous.max_concurrency
        found = []
        for variant in route.variants:
            places = []
            for instance in variant.instances:
                key = (instance.instance_id, instance.run_id, instance.address)
                place = before.get(key) or RoutedContainer(instance, route.endpoint_name)
                place.variant_name = variant.name
                place.slots = most or max(1, min(instance.slots, self._default))
                self._places[key] = place
                places.append(place)
            found.append((variant, places))
        return found

    @property
    def endpoint_names(self) -> set[str]:
        return set(self._variants)

    @property
    def addresses(self) -> set[str]:
        return {place.address for place in (*self._places.values(), *self._left)}

    def first_variant(self, endpoint_name: str) -> str | None:
        """Returns the variant for the metrics of a request that reached none."""
        variants = self._variants.get(endpoint_name)
        return variants[0][0].name if variants else None

    def free(self, endpoint_name: str) -> int:
        return sum(place.free for _, places in self._open(endpoint_name) for place in places)

    def take(self, endpoint_name: str) -> RoutedContainer | None:
        """Take a slot until `give`: the variant by weight, the instance by strategy."""
        variants = [one for one in self._open(endpoint_name) if any(p.is_free for p in one[1])]
        if not variants:
            return None
        chosen = choose_variant([variant.weight for variant, _ in variants], self._random)
        variant, places = variants[chosen]
        place = choose_free(places, variant.strategy, self._random)
        if place is not None:
            place.outstanding += 1
        return place

    def give(self, place: RoutedContainer) -> None:
        place.outstanding -= 1
        if not place.outstanding:
            self._left.discard(place)

    def wake_at(self) -> float | None:
        """Returns when the next instance stops resting (monotonic)."""
        now = self._clock.monotonic()
        times = [place.rests_until for place in self._places.values() if place.rests_until > now]
        return min(times, default=None)

    @property
    def busy(self) -> frozenset[str]:
        places = (*self._places.values(), *self._left)
        return frozenset(place.instance_id for place in places if place.outstanding)

    def _open(self, endpoint_name: str) -> Sequence[tuple[VariantRoute, list[RoutedContainer]]]:
        variants = self._variants.get(endpoint_name, ())
        # As in the gateway: if all weights are 0, the chances are equal.
        weighted = [one for one in variants if one[0].weight > 0] or variants
        now = self._clock.monotonic()
        return [
            (variant, [place for place in places if place.rests_until <= now])
            for variant, places in weighted
        ]
