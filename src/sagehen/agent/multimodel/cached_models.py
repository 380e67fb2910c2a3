"""The models loaded in one container: cost, leases, unloading, metrics."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.errors import ModelRefused
from sagehen.agent.multimodel.container_client import ContainerClient
from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable

__all__ = ["LEASE_SECONDS", "CachedModel", "CachedModels", "ModelTallies", "ModelUnloader", "Tally"]

log = logging.getLogger(__name__)

LEASE_SECONDS = 5.0
"""seconds; gateways report use each second, so a lease unused for longer belongs to a gateway
that has ended"""


@dataclass(eq=False)
class CachedModel:
    """A model that the container holds."""

    name: str
    artifact: Artifact
    cost_bytes: int
    leases: int
    """leases not released"""
    used_at: float = 0.0


class CachedModels:
    """The loaded models, least recently used first, and their memory."""

    def __init__(self, capacity_bytes: int, clock: Clock) -> None:
        self.capacity_bytes = capacity_bytes
        self.charged_bytes = 0
        self.reserved_bytes = 0
        """for models being loaded"""
        self._clock = clock
        self._loaded: OrderedDict[str, CachedModel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def find(self, name: str) -> CachedModel | None:
        return self._loaded.get(name)

    def fits(self, need_bytes: int) -> bool:
        return self.charged_bytes + self.reserved_bytes + need_bytes <= self.capacity_bytes

    def add(self, model: CachedModel) -> None:
        self._loaded[model.name] = model
        self.charged_bytes += model.cost_bytes
        self.touch([model.name])

    def remove(self, name: str) -> CachedModel:
        model = self._loaded.pop(name)
        self.charged_bytes -= model.cost_bytes
        return model

    def clear(self) -> list[CachedModel]:
        return [self.remove(name) for name in list(self._loaded)]

    def touch(self, names: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for name in names:
            model = self._loaded.get(name)
            if model is not None:
                model.used_at = now
                self._loaded.move_to_end(name)

    def lease(self, model: CachedModel) -> None:
        """Keeps the model until its release, or until unused for LEASE_SECONDS."""
        model.leases += 1
        self.touch([model.name])

    def release(self, counts: Mapping[str, int]) -> list[CachedModel]:
        """Ends leases. Returns the models that have none left."""
        unleased = []
        for name, count in counts.items():
            model = self._loaded.get(name)
            if model is not None and model.leases:
                model.leases = max(0, model.leases - count)
                if not model.leases:
                    unleased.append(model)
        return unleased

    def idle(self, keep_name: str = "") -> Iterator[CachedModel]:
        """Models to unload, least recently used first."""
        now = self._clock.monotonic()
        for model in self._loaded.values():
            if model.name != keep_name and (
                not model.leases or now - model.used_at > LEASE_SECONDS
            ):
                yield model


@dataclass
class Tally:
    """The count and total time of an operation."""

    count: int = 0
    microseconds: int = 0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.microseconds += round(seconds * 1e6)


@dataclass
class ModelTallies:
    """SageMaker's multi-model metrics of one instance; they only grow."""

    loading: Tally = field(default_factory=Tally)
    downloading: Tally = field(default_factory=Tally)
    unloading: Tally = field(default_factory=Tally)
    waiting: Tally = field(default_factory=Tally)

    def values(self) -> dict[str, float]:
        """Names end in Sum (microseconds) or Count."""
        tallies = {
            "ModelLoadingTime": self.loading,
            "ModelDownloadingTime": self.downloading,
            "ModelUnloadingTime": self.unloading,
            "ModelLoadingWaitTime": self.waiting,
        }
        values: dict[str, float] = {}
        for name, tally in tallies.items():
            values[name + "Sum"] = tally.microseconds
            values[name + "Count"] = tally.count
        return values


class ModelUnloader:
    """Unloads models from CachedModels, the container and the disk.

    Args:
        folder: the container's `/opt/ml/models`.
        keep: artifacts stay on disk.
        changed: set after each unloading.
    """

    def __init__(
        self,
        models: CachedModels,
        container: ContainerClient,
        artifacts: ArtifactCache,
        tallies: ModelTallies,
        clock: Clock,
        *,
        folder: Path,
        keep: bool,
        changed: asyncio.Event,
    ) -> None:
        self._models = models
        self._container = container
        self._artifacts = artifacts
        self._tallies = tallies
        self._clock = clock
        self._folder = folder
        self._keep = keep
        self._changed = changed
        self._unloading: dict[str, asyncio.Task[None]] = {}

    def start_unloading(self, model: CachedModel, *, is_lost: bool = False) -> asyncio.Task[None]:
        """Unloads a model in a task; `is_lost`: the container has dropped it already."""
        self._models.remove(model.name)
        task = asyncio.create_task(self._drop(model) if is_lost else self._unload_and_drop(model))
        self._unloading[model.name] = task
        task.add_done_callback(lambda _: self._end(model.name))
        return task

    async def unload(self, model: CachedModel, *, is_lost: bool = False) -> None:
        # Shielded: the model has left CachedModels, so this must finish.
        await asyncio.shield(self.start_unloading(model, is_lost=is_lost))

    async def unload_idle(self, count: int, keep_name: str = "") -> bool:
        unloaded = False
        for _ in range(count):
            model = next(self._models.idle(keep_name), None)
            if model is None:
                break
            unloaded = True
            await self.unload(model)
        return unloaded

    async def wait_for(self, name: str) -> None:
        """Waits while that model is being unloaded."""
        if name in self._unloading:
            await asyncio.wait({self._unloading[name]})

    async def close(self) -> None:
        """The container must have ended."""
        unloading = list(self._unloading.values())
        for task in unloading:
            task.cancel()
        await asyncio.gather(*unloading, return_exceptions=True)
        models = self._models.clear()
        try:
            # One call for possibly thousands of folders: a new container waits.
            await asyncio.to_thread(_remove_trees, [self._folder / model.name for model in models])
        finally:
            for model in models:
                await self._artifacts.release(model.artifact, keep=self._keep)

    async def unload_from_container(self, name: str) -> None:
        """Has the container unload a model; a refusal shows in the next load's cost."""
        try:
            await self._container.unload(name)
        except (ModelRefused, Unavailable) as error:
            log.warning("A model was not unloaded: %s", error, extra={"action": "model_kept"})

    async def discard(self, name: str, artifact: Artifact) -> None:
        try:
            await asyncio.to_thread(remove_tree, self._folder / name)
        finally:
            await self._artifacts.release(artifact, keep=self._keep)

    async def _drop(self, model: CachedModel) -> None:
        await self.discard(model.name, model.artifact)

    async def _unload_and_drop(self, model: CachedModel) -> None:
        started = self._clock.monotonic()
        try:
            await self.unload_from_container(model.name)
            self._tallies.unloading.add(self._clock.monotonic() - started)
        finally:
            # Also when cancelled at the container's end.
            await self._drop(model)

    def _end(self, name: str) -> None:
        del self._unloading[name]
        self._changed.set()


def _remove_trees(folders: list[Path]) -> None:
    for folder in folders:
        remove_tree(folder)
