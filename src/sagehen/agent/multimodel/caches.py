"""The model caches of one instance: of each of its containers that holds many models, one.

How much a multi-model container may hold, and how many models it may load at once.
"""

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
"""In a container's Environment: the most that its models together may be booked with."""
LEAST_LOADS_AT_ONCE = 2
FETCHES_PER_LOAD = 4
ONE_SHOT_FACTOR = 4
"""Without model cache more is loaded at once: each model is used for one moment only."""


async def open_model_cache(
    running: RunningContainer, node: Node, tallies: ModelTallies, sharing: int = 1
) -> ModelCache:
    """The cache of a container that has just become healthy and holds no model yet.

    `sharing`: so many containers of the instance hold models, each an equal part of the memory.

    Raises:
        Invalid: its model data URL, or the room it asks for, makes no sense.
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
    """A share of the instance type's memory, less what the container takes without a model.

    Where this machine has less than the type it stands in for, the machine's memory counts.
    """
    machine = machine_memory_bytes()
    known = instance_types().get(instance_type)
    memory = min(known.memory_bytes, machine) if known else machine
    return max(0, int(memory * share) - base_bytes)


def _parse_room(given: str) -> int:
    if not given.isdecimal():
        raise Invalid(f"{ROOM_VARIABLE} must be a number of bytes, but it is {given[:40]!r}.")
    return int(given)


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
