"""The needs of endpoints besides instances: stores of offline results, and fork servers."""

from collections.abc import Iterator
from functools import cached_property

from sagehen.services.sagemaker.hosting.records import EndpointRecord, EndpointStatus
from sagehen.services.sagemaker.offline_results.stores import StoreRequest, requested_stores

__all__ = ["Needs"]


class Needs:
    """Adds up the needs of all endpoints. Few have any."""

    def __init__(self) -> None:
        self._stores: dict[str, tuple[StoreRequest, ...]] = {}
        self._images: dict[str, frozenset[str]] = {}

    def note(self, name: str, endpoint: EndpointRecord | None) -> None:
        """Notes an endpoint that is new, different or gone."""
        found = (
            (requested_stores([endpoint]), frozenset(_warm_images(endpoint)))
            if endpoint is not None
            else ((), frozenset[str]())
        )
        if found == (self._stores.get(name, ()), self._images.get(name, frozenset())):
            return
        self._stores.pop(name, None)
        self._images.pop(name, None)
        stores, images = found
        if stores:
            self._stores[name] = stores
        if images:
            self._images[name] = images
        self.__dict__.pop("stores", None)
        self.__dict__.pop("warm_images", None)

    @cached_property
    def stores(self) -> tuple[StoreRequest, ...]:
        """All stores that are needed."""
        by_file = {each.file: each for name in sorted(self._stores) for each in self._stores[name]}
        return tuple(by_file.values())

    @cached_property
    def warm_images(self) -> tuple[str, ...]:
        """The images of all containers that calls may start."""
        return tuple(sorted(frozenset().union(*self._images.values())))


def _warm_images(endpoint: EndpointRecord) -> Iterator[str]:
    """Not of endpoints that are created: their first instance proves that the model starts, and
    would share the processors with a fork server."""
    if endpoint.current is None or endpoint.status is EndpointStatus.DELETING:
        return
    for variant in endpoint.current.all_variants:
        if variant.starts_on_demand:
            yield from (container.image for container in variant.containers)
