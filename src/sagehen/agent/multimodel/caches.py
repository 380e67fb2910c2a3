"""The model caches of an instance, one per multi-model container."""

import os
from collections.abc import Iterable, Mapping, Sequence

from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.agent.instances.running import RunningContainer
from sagehen.agent.messages import LoadedModel
from sagehen.agent.multimodel.cache import ModelCache, ModelCachePlan
from sagehen.agent.multimodel.cached_models import ModelTallies
from sagehen.agent.multimodel.container_client import ContainerClient
from sagehen.agent.node import Node
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.instance_types import find_instance_type
from sagehen.frame.s3_locations import parse_location

__all__ = ["CAPACITY_VARIABLE", "ModelCaches", "choose_capacity", "open_model_cache"]

CAPACITY_VARIABLE = "SAGEHEN_MODEL_CACHE_BYTES"
"""in a container's Environment: bytes for all its models"""
MIN_CONCURRENT_LOADS = 2
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
        Invalid: the model data URL or CAPACITY_VARIABLE is malformed.
    """
    container = running.paths.container
    base = await running.process.memory_bytes()
    capacity = container.environment.get(CAPACITY_VARIABLE)
    loads = max(MIN_CONCURRENT_LOADS, os.cpu_count() or 1)
    if not container.model_cache:
        loads *= ONE_SHOT_FACTOR
    plan = ModelCachePlan(
        container_number=running.paths.number,
        prefix=parse_location(container.model_data_url or ""),
        folder=running.paths.base / "models",
        capacity_bytes=_parse_capacity(capacity)
        if capacity is not None
        else choose_capacity(
            running.paths.spec.instance_type, node.settings.model_memory_share / sharing, base
        ),
        base_bytes=base,
        loads_at_once=loads,
        fetches_at_once=loads * FETCHES_PER_LOAD,
        max_load_seconds=node.settings.model_load_timeout_seconds,
        keep=container.model_cache,
        container_folder=None if running.base is None else running.base / "models",
    )
    return ModelCache(
        plan,
        ContainerClient(running.address),
        node.artifacts,
        running.process.memory_bytes,
        tallies,
        node.clock,
    )


def choose_capacity(instance_type: str, share: float, base_bytes: int) -> int:
    """A share of the instance type's (or this machine's smaller) memory, minus the container's
    own use."""
    machine = machine_memory_bytes()
    instance_type_record = find_instance_type(instance_type)
    memory = min(instance_type_record.memory_bytes, machine) if instance_type_record else machine
    return max(0, int(memory * share) - base_bytes)


def _parse_capacity(text: str) -> int:
    if not text.isdecimal():
        raise Invalid(f"{CAPACITY_VARIABLE} must be a number of bytes, but it is {text[:40]!r}.")
    return int(text)


class ModelCaches:
    """The caches by their containers' hostnames; empty while the containers do not serve."""

    def __init__(self, spec: InstanceSpec, node: Node) -> None:
        self._spec = spec
        self._node = node
        self._hostnames = [
            container.hostname for container in spec.containers if container.multi_model
        ]
        self._tallies = ModelTallies()
        self._caches: dict[str, ModelCache] = {}

    async def open(self, containers: Sequence[RunningContainer]) -> None:
        for running in containers:
            if running.paths.container.multi_model:
                self._caches[running.paths.container.hostname] = await open_model_cache(
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
        self, names: Iterable[str], released: Mapping[str, int], hostname: str | None = None
    ) -> None:
        if self._caches:
            cache = self._find(hostname)
            cache.touch(names)
            cache.release(released)

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
            "LoadedModelBytes": sum(cache.charged_bytes for cache in caches),
            **self._tallies.values(),
        }

    def _find(self, hostname: str | None) -> ModelCache:
        if hostname is not None and hostname not in {
            container.hostname for container in self._spec.containers
        }:
            raise NotFound(f"There is no container {hostname}.")
        if not self._hostnames or hostname not in (None, *self._hostnames):
            raise Invalid("TargetModel is only for endpoints of multi-model containers.")
        cache = self._caches.get(hostname or self._hostnames[0])
        if cache is None:
            raise Unavailable("The instance is not in service.")
        return cache
