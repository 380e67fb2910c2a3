"""How models leave a multi-model container: out of the books, the container and its folder."""

import asyncio
import logging
from pathlib import Path

from sagehen.agent.artifacts import Artifact, ArtifactCache
from sagehen.agent.faults import ModelRefused
from sagehen.agent.folders import remove_tree
from sagehen.agent.model_books import Loaded, ModelBooks
from sagehen.agent.model_calls import ModelCalls
from sagehen.agent.tallies import ModelTallies
from sagehen.clock import Clock
from sagehen.errors import Unavailable

__all__ = ["ModelExit"]

log = logging.getLogger(__name__)


class ModelExit:
    """
    Args:
        folder: the container's `/opt/ml/models`.
        keep: whether an artifact stays on disk when its model has left.
        changed: set whenever a model has left.
    """

    def __init__(
        self,
        books: ModelBooks,
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

    def begin(self, model: Loaded, *, is_lost: bool = False) -> asyncio.Task[None]:
        """Take a model out of the books now, and see it off; `is_lost`: the container has it no
        longer."""
        self._books.remove(model.name)
        task = asyncio.create_task(self._forget(model) if is_lost else self._unload(model))
        self._leaving[model.name] = task
        task.add_done_callback(lambda _: self._end(model.name))
        return task

    async def see_off(self, model: Loaded, *, is_lost: bool = False) -> None:
        # Shielded: it has left the books, so it must be seen through by somebody.
        await asyncio.shield(self.begin(model, is_lost=is_lost))

    async def first(self, count: int, besides: str = "") -> bool:
        """Have so many idle models leave, or as many as there are; whether there was one."""
        some = False
        for _ in range(count):
            model = next(self._books.idle(besides), None)
            if model is None:
                break
            some = True
            await self.see_off(model)
        return some

    async def wait_for(self, name: str) -> None:
        """Return when the model of that name is not leaving (any more)."""
        if name in self._leaving:
            await asyncio.wait({self._leaving[name]})

    async def close(self) -> None:
        """The container is gone, with all that it held."""
        leaving = list(self._leaving.values())
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        left = self._books.clear()
        try:
            # In one turn of a thread: there may be thousands, and a new container waits for it.
            await asyncio.to_thread(_remove_trees, [self._folder / model.name for model in left])
        finally:
            for model in left:
                await self._artifacts.release(model.artifact, keep=self._keep)

    async def withdraw(self, name: str) -> None:
        """Tell the container to drop a model. If it does not, the next load's cost shows it."""
        try:
            await self._container.unload(name)
        except (ModelRefused, Unavailable) as error:
            log.warning("A model was not unloaded: %s", error, extra={"action": "model_kept"})

    async def let_go(self, name: str, artifact: Artifact) -> None:
        """Remove what the container was given, and give the artifact back."""
        try:
            await asyncio.to_thread(remove_tree, self._folder / name)
        finally:
            await self._artifacts.release(artifact, keep=self._keep)

    async def _forget(self, model: Loaded) -> None:
        await self.let_go(model.name, model.artifact)

    async def _unload(self, model: Loaded) -> None:
        started = self._clock.monotonic()
        try:
            await self.withdraw(model.name)
            self._tallies.unloading.add(self._clock.monotonic() - started)
        finally:
            # Also when the container ends meanwhile, and this with it.
            await self._forget(model)

    def _end(self, name: str) -> None:
        del self._leaving[name]
        self._changed.set()


def _remove_trees(folders: list[Path]) -> None:
    for folder in folders:
        remove_tree(folder)
