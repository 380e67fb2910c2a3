"""The model caches of one instance: of each of its containers that holds many models, one."""

from collections.abc import Iterable, Mapping, Sequence

from sagehen.agent.messages import LoadedModel
from sagehen.agent.model_cache import ModelCache
from sagehen.agent.model_room import open_model_cache
from sagehen.agent.node import Node
from sagehen.agent.running import RunningContainer
from sagehen.agent.tallies import ModelTallies
from sagehen.domain.containers import InstanceSpec
from sagehen.errors import Invalid, NotFound, Unavailable

__all__ = ["ModelCaches"]


class ModelCaches:
    """By the hostnames of the containers; there are none while these do not serve."""

    def __init__(self, spec: InstanceSpec, node: Node) -> None:
        self._spec = spec
        self._node = node
        self._hostnames = [one.hostname for one in spec.containers if one.multi_model]
        self._tallies = ModelTallies()
        self._caches: dict[str, ModelCache] = {}

    async def open(self, containers: Sequence[RunningContainer]) -> None:
        """New caches for containers that have just become healthy."""
        for running in containers:
            if running.place.container.multi_model:
                self._caches[running.place.container.hostname] = await open_model_cache(
                    running, self._node, self._tallies, sharing=len(self._hostnames)
                )

    async def close(self) -> None:
        """The containers are gone, or about to go."""
        caches, self._caches = self._caches, {}
        for cache in caches.values():
            await cache.close()

    @property
    def are_open(self) -> bool:
        """There is at least one."""
        return bool(self._caches)

    async def load(
        self,
        target: str,
        wait_seconds: float,
        hostname: str | None = None,
        short_of_memory: bool = False,
    ) -> LoadedModel:
        """See `ModelCache.load`; without a hostname, in the one container that holds models.

        Raises:
            Invalid: no container holds many models, or that one does not.
            NotFound: there is no container of that name.
            Unavailable: the instance is not in service.
        """
        return await self._find(hostname).load(target, wait_seconds, short_of_memory)

    def touch(
        self, names: Iterable[str], given_back: Mapping[str, int], hostname: str | None = None
    ) -> None:
        """Models were used just now, and some that were lent are not needed any more."""
        if self._caches:
            cache = self._find(hostname)
            cache.touch(names)
            cache.give_back(given_back)

    async def unload_idle(self) -> None:
        for cache in list(self._caches.values()):
            await cache.unload_idle()

    def values(self) -> dict[str, float]:
        """What is told of them, by the names of metrics; nothing where none is to be there."""
        if not self._hostnames:
            return {}
        caches = self._caches.values()
        return {
            "LoadedModelCount": sum(cache.loaded_count for cache in caches),
            "LoadedModelBytes": sum(cache.booked_bytes for cache in caches),
            **self._tallies.values(),
        }

    def _find(self, hostname: str | None) -> ModelCache:
        if hostname is not None and hostname not in {one.hostname for one in self._spec.containers}:
            raise NotFound(f"There is no container {hostname}.")
        if not self._hostnames or hostname not in (None, *self._hostnames):
            raise Invalid("TargetModel is only for endpoints of multi-model containers.")
        cache = self._caches.get(hostname or self._hostnames[0])
        if cache is None:
            raise Unavailable("The instance is not in service.")
        return cache
