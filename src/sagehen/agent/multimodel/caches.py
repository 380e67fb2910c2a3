"""The model caches of an instance, one per multi-model container."""

import os
from collections.abc import Iterable, Mapping, Sequence

from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.agent.instances.running import RunningContainer
from sagehen.agent.messages import LoadedModel
from sagehen.agent.multimodel.cache import ModelCache, ModelCachePlan
from sagehen.agent.multimodel.container_client import ModelCalls
from sagehen.agent.multimodel.loaded_models import ModelTallies
from sagehen.agent.node import Node
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.instance_types import instance_types
from sagehen.frame.s3_locations import parse_location

__all__ = ["ROOM_VARIABLE", "ModelCaches", "choose_room", "open_model_cache"]

ROOM_VARIABLE = "SAGEHEN_MODEL_CACHE_BYTES"
"""in a container's Environment: bytes for all its models"""
LEAST_LOADS_AT_ONCE = 2
FETCHES_PER_LOAD = 4
ONE_SHOT_FACTOR = 4
"""without model cache, each model is used only briefly"""


async def open_model_cache(
    running: RunningContainer, node: Node, tallies: ModelTallies, sharing: int = 1
) -> ModelCache:
    """Opens the cache of a healthy container that holds no model yet.

    Args:
        sharing: number of multi-model containers that share the memory.

    Raises:
        Invalid: the model data URL or ROOM_VARIABLE is malformed.
    """
    container = running.place.container
    base = await running.process.memory_bytes()
    given = container.environment.get(ROOM_VARIABLE)
    loads = max(LEAST_LOADS_AT_ONCE, os.cpu_count() or 1)
    if not container.model_cache:
        loads *= ONE_SHOT_FACTOR
    plan = ModelCachePlan(
        container_number=running.place.number,
        prefix=parse_location(container.model_data_url or ""),
        folder=running.place.base / "models",
        room_bytes=_parse_room(given)
        if given is not None
        else choose_room(
            running.place.spec.instance_type, node.settings.model_memory_share / sharing, base
        ),
        base_bytes=base,
        loads_at_once=loads,
        fetches_at_once=loads * FETCHES_PER_LOAD,
        longest_load_seconds=node.settings.model_load_timeout_seconds,
        keep=container.model_cache,
    )
    return ModelCache(
        plan,
        ModelCalls(running.address),
        node.artifacts,
        running.process.memory_bytes,
        tallies,
        node.clock,
    )


def choose_room(instance_type: str, share: float, base_bytes: int) -> int:
    """A share of the instance type's (or this machine's smaller) memory, minus the container's
    own use."""
    machine = machine_memory_bytes()
    known = instance_types().get(instance_type)
    memory = min(known.memory_bytes, machine) if known else machine
    return max(0, int(memory * share) - base_bytes)


def _parse_room(given: str) -> int:
    if not given.isdecimal():
        raise Invalid(f"{ROOM_VARIABLE} must be a number of bytes, but it is {given[:40]!r}.")
    return int(given)


class ModelCaches:
    """The caches by their containers' hostnames; empty while the containers do not serve."""

    def __init__(self, spec: InstanceSpec, node: Node) -> None:
        self._spec = spec
        self._node = node
        self._hostnames = [one.hostname for one in spec.containers if one.multi_model]
        self._tallies = ModelTallies()
        self._caches: dict[str, ModelCache] = {}

    async def open(self, containers: Sequence[RunningContainer]) -> None:
        for running in containers:
            if running.place.container.multi_model:
                self._caches[running.place.container.hostname] = await open_model_cache(
                    running, self._node, self._tallies, sharing=len(self._hostnames)
                )

    async def close(self) -> None:
        caches, self._caches = self._caches, {}
        for cache in caches.values():
            await cache.close()

    @property
    def are_open(self) -> bool:
        return bool(self._caches)

    async def load(
        self,
        target: str,
        wait_seconds: float,
        hostname: str | None = None,
        short_of_memory: bool = False,
    ) -> LoadedModel:
        """See `ModelCache.load`; the hostname is optional for a single multi-model container.

        Raises:
            Invalid: the container is not multi-model.
            NotFound: no container has that name.
            Unavailable: the instance is not in service.
        """
        return await self._find(hostname).load(target, wait_seconds, short_of_memory)

    def touch(
        self, names: Iterable[str], given_back: Mapping[str, int], hostname: str | None = None
    ) -> None:
        if self._caches:
            cache = self._find(hostname)
            cache.touch(names)
            cache.give_back(given_back)

    async def unload_idle(self) -> None:
        for cache in list(self._caches.values()):
            await cache.unload_idle()

    def values(self) -> dict[str, float]:
        """Metrics by name; empty without multi-model containers."""
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
