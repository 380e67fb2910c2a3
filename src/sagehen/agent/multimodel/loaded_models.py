"""The models loaded in one container: cost, loans, unloading, metrics."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.errors import ModelRefused
from sagehen.agent.multimodel.container_client import ModelCalls
from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable

__all__ = ["LENT_SECONDS", "CachedModel", "LoadedModels", "ModelTallies", "ModelUnloader", "Tally"]

log = logging.getLogger(__name__)

LENT_SECONDS = 5.0
"""seconds; gateways report use each second, so a loan unused for longer belongs to a gateway
that has ended"""


@dataclass(eq=False)
class CachedModel:
    """A model that the container holds."""

    name: str
    artifact: Artifact
    cost_bytes: int
    lent: int
    """loans not given back"""
    used_at: float = 0.0


class LoadedModels:
    """The loaded models, least recently used first, and their memory."""

    def __init__(self, room_bytes: int, clock: Clock) -> None:
        self.room_bytes = room_bytes
        self.booked_bytes = 0
        self.reserved_bytes = 0
        """for models being loaded"""
        self._clock = clock
        self._loaded: OrderedDict[str, CachedModel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def find(self, name: str) -> CachedModel | None:
        return self._loaded.get(name)

    def fits(self, need_bytes: int) -> bool:
        return self.booked_bytes + self.reserved_bytes + need_bytes <= self.room_bytes

    def add(self, model: CachedModel) -> None:
        self._loaded[model.name] = model
        self.booked_bytes += model.cost_bytes
        self.touch([model.name])

    def remove(self, name: str) -> CachedModel:
        model = self._loaded.pop(name)
        self.booked_bytes -= model.cost_bytes
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

    def lend(self, model: CachedModel) -> None:
        """Keeps the model until given back, or unused for LENT_SECONDS."""
        model.lent += 1
        self.touch([model.name])

    def give_back(self, counts: Mapping[str, int]) -> list[CachedModel]:
        """Returns the models without loans."""
        free = []
        for name, count in counts.items():
            model = self._loaded.get(name)
            if model is not None and model.lent:
                model.lent = max(0, model.lent - count)
                if not model.lent:
                    free.append(model)
        return free

    def idle(self, besides: str = "") -> Iterator[CachedModel]:
        """Models to unload, least recently used first."""
        now = self._clock.monotonic()
        for model in self._loaded.values():
            if model.name != besides and (not model.lent or now - model.used_at > LENT_SECONDS):
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
    """Unloads models from LoadedModels, the container and the disk.

    Args:
        folder: the container's `/opt/ml/models`.
        keep: artifacts stay on disk.
        changed: set after each unloading.
    """

    def __init__(
        self,
        books: LoadedModels,
        container: ModelCalls,
        artifacts: ArtifactCache,
        tallies: ModelTallies,
        clock: Clock,
        *,
        folder: Path,
        keep: bool,
        changed: asyncio.Event,
    ) -> None:
        self._books = books
        self._container = container
        self._artifacts = artifacts
        self._tallies = tallies
        self._clock = clock
        self._folder = folder
        self._keep = keep
        self._changed = changed
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def begin(self, model: CachedModel, *, is_lost: bool = False) -> asyncio.Task[None]:
        """Unloads a model in a task; `is_lost`: the container has dropped it already."""
        self._books.remove(model.name)
        task = asyncio.create_task(self._forget(model) if is_lost else self._unload(model))
        self._leaving[model.name] = task
        task.add_done_callback(lambda _: self._end(model.name))
        return task

    async def see_off(self, model: CachedModel, *, is_lost: bool = False) -> None:
        # Shielded: the model has left LoadedModels, so this must finish.
        await asyncio.shield(self.begin(model, is_lost=is_lost))

    async def first(self, count: int, besides: str = "") -> bool:
        some = False
        for _ in range(count):
            model = next(self._books.idle(besides), None)
            if model is None:
                break
            some = True
            await self.see_off(model)
        return some

    async def wait_for(self, name: str) -> None:
        """Waits while that model is being unloaded."""
        if name in self._leaving:
            await asyncio.wait({self._leaving[name]})

    async def close(self) -> None:
        """Must be called once the container has ended."""
        leaving = list(self._leaving.values())
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        left = self._books.clear()
        try:
            # One call for possibly thousands of folders: a new container waits.
            await asyncio.to_thread(_remove_trees, [self._folder / model.name for model in left])
        finally:
            for model in left:
                await self._artifacts.release(model.artifact, keep=self._keep)

    async def withdraw(self, name: str) -> None:
        """Has the container unload a model; a refusal shows in the next load's cost."""
        try:
            await self._container.unload(name)
        except (ModelRefused, Unavailable) as error:
            log.warning("A model was not unloaded: %s", error, extra={"action": "model_kept"})

    async def let_go(self, name: str, artifact: Artifact) -> None:
        try:
            await asyncio.to_thread(remove_tree, self._folder / name)
        finally:
            await self._artifacts.release(artifact, keep=self._keep)

    async def _forget(self, model: CachedModel) -> None:
        await self.let_go(model.name, model.artifact)

    async def _unload(self, model: CachedModel) -> None:
        started = self._clock.monotonic()
        try:
            await self.withdraw(model.name)
            self._tallies.unloading.add(self._clock.monotonic() - started)
        finally:
            # Also when cancelled at the container's end.
            await self._forget(model)

    def _end(self, name: str) -> None:
        del self._leaving[name]
        self._changed.set()


def _remove_trees(folders: list[Path]) -> None:
    for folder in folders:
        remove_tree(folder)
