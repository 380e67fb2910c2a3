"""Loads and unloads models: in a thread, each behind its own queue."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sagehen.clock import SYSTEM, Clock
from sagehen.modelserver.batching import Batcher
from sagehen.modelserver.calling import Caller
from sagehen.modelserver.contract import Adapter, BatchModel, CallModel, Runner
from sagehen.modelserver.environment import Environment
from sagehen.modelserver.memory import give_memory_back

__all__ = ["LoadedModel", "Loader"]

_MAX_THREADS = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """One model that answers, and the queue before it."""

    name: str
    url: str
    model: BatchModel | CallModel
    runner: Runner


class Loader:
    """Makes models ready for requests, and gets rid of them again."""

    def __init__(self, adapter: Adapter, environment: Environment, clock: Clock = SYSTEM) -> None:
        self._adapter = adapter
        self._environment = environment
        self._clock = clock
        # One for loads, one for work: a slow load must not hold up predictions.
        self._loads = ThreadPoolExecutor(2, "load")
        self._work = ThreadPoolExecutor(_threads(environment), "work")

    async def load(self, name: str, url: str) -> LoadedModel:
        """Raises what the adapter raises."""
        start = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        model = await loop.run_in_executor(self._loads, self._load, Path(url))
        taken = self._clock.monotonic() - start
        log.info("Loaded the model %s in %.0f ms.", name, taken * 1000)
        return LoadedModel(name, url, model, self._runner(model))

    async def unload(self, loaded: LoadedModel) -> None:
        """Return when its requests are answered and its memory is free."""
        await loaded.runner.drained()
        await asyncio.get_running_loop().run_in_executor(self._loads, loaded.model.close)
        log.info("Unloaded the model %s.", loaded.name)

    async def sweep_memory(self) -> None:
        """Give the memory of unloaded models back, when nothing refers to them any more."""
        await asyncio.get_running_loop().run_in_executor(self._loads, give_memory_back)

    def close(self) -> None:
        self._loads.shutdown(wait=False, cancel_futures=True)
        self._work.shutdown(wait=False, cancel_futures=True)

    def _load(self, model_dir: Path) -> BatchModel | CallModel:
        try:
            return self._adapter.load(model_dir)
        except SystemExit as end:
            raise RuntimeError(f"The model's code called sys.exit({end.code!r}).") from end

    def _runner(self, model: BatchModel | CallModel) -> Runner:
        settings = self._environment
        if isinstance(model, BatchModel):
            return Batcher(model, self._work, settings.batch_queue, settings.batches, self._clock)
        return Caller(
            model, self._work, settings.workers, settings.call_queue, settings.timeout_seconds
        )


def _threads(environment: Environment) -> int:
    return _MAX_THREADS if environment.multi_model else environment.workers
