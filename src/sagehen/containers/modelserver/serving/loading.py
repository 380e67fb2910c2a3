"""Loads and unloads models, in this process or in worker processes, and frees their memory."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sagehen.base.clock import SYSTEM, Clock
from sagehen.containers.modelserver.adapters.script.script import (
    find_requirements,
    misplaced_script,
)
from sagehen.containers.modelserver.contract import Adapter, BatchModel, JointPrediction, Runner
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.serving.batching import Batcher
from sagehen.containers.modelserver.serving.joint_batching import JointBatching
from sagehen.containers.modelserver.serving.malloc_trim import give_memory_back, trim
from sagehen.containers.modelserver.serving.responses import not_loaded
from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.pool import WorkerPool
from sagehen.containers.modelserver.workers.process import StartedWorker
from sagehen.containers.python_envs.environments import EnvironmentLease, Environments
from sagehen.containers.python_envs.install import EnvironmentSpec

__all__ = ["HeapTrimmer", "Loader", "ServableModel"]

T = TypeVar("T")

_MAX_THREADS = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServableModel:
    """A model that can answer requests."""

    name: str
    url: str
    runner: Runner
    close: Callable[[], Awaitable[None]]
    """Requires a drained queue."""


@dataclass(frozen=True)
class _Pool:
    workers: WorkerPool
    lease: EnvironmentLease | None
    """None for the server's own environment."""


class Loader:
    """Loads and unloads models."""

    def __init__(
        self,
        adapter: Adapter,
        environment: Environment,
        clock: Clock = SYSTEM,
        started: Sequence[StartedWorker] = (),
    ) -> None:
        """Args:
        started: workers of this interpreter that run already.
        """
        self._started = list(started)
        self._adapter = adapter
        self._environment = environment
        self._clock = clock
        # Separate threads: a slow load must not delay predictions.
        self._loads = ThreadPoolExecutor(2, "load")
        self._work = ThreadPoolExecutor(_threads(environment), "work")
        # A thread begins when it is first needed.
        self._decoder = ThreadPoolExecutor(1, "decode")
        self._installs = ThreadPoolExecutor(2, "install")
        self._environments = Environments(
            environment.environments_dir,
            environment.own_environments_dir,
            environment.environments_bytes,
            environment.startup_seconds,
            environment.variables,
        )
        self._pools: dict[str, _Pool] = {}  # key: the interpreter
        self._joint: dict[JointPrediction, JointBatching] = {}
        self._trimmer = HeapTrimmer()

    async def load(
        self, name: str, url: str, on_lost: Callable[[str], None] | None = None
    ) -> ServableModel:
        """Raises what the adapter raises, in any process.

        Calls `on_lost` with the name when its workers died; without it, new workers load the model
        again.
        """
        start = self._clock.monotonic()
        if misplaced := await self._in_thread(misplaced_script, Path(url), self._environment):
            log.warning("%s", misplaced)
        if await self._in_thread(self._adapter.needs_worker, Path(url)):
            loaded = await self._load_in_workers(name, url, on_lost)
        else:
            loaded = await self._load_here(name, url)
        seconds = self._clock.monotonic() - start
        log.info("Loaded the model %s in %.0f ms.", name, seconds * 1000)
        return loaded

    async def unload(self, loaded: ServableModel) -> None:
        """Returns when requests are answered and the model is closed; trims the heap afterwards."""
        await loaded.runner.drained()
        await loaded.close()
        self._trimmer.request()
        log.info("Unloaded the model %s.", loaded.name)

    def abort_load(self, url: str) -> None:
        """Ends the workers that hang in loading. A load in this process cannot be ended."""
        for pool in self._pools.values():
            pool.workers.abort_load(url)

    async def free_memory(self) -> None:
        """Frees the memory of a model that failed to load."""
        await self._in_thread(give_memory_back)

    @property
    def stuck(self) -> bool:
        """Whether workers with models keep dying."""
        return any(pool.workers.stuck for pool in self._pools.values())

    async def close(self) -> None:
        self._loads.shutdown(wait=False, cancel_futures=True)
        self._work.shutdown(wait=False, cancel_futures=True)
        self._decoder.shutdown(wait=False, cancel_futures=True)
        self._installs.shutdown(wait=False, cancel_futures=True)
        _kill(self._started)
        await asyncio.to_thread(self._environments.close)
        await asyncio.gather(*(pool.workers.close() for pool in self._pools.values()))

    async def _load_here(self, name: str, url: str) -> ServableModel:
        model = await self._in_thread(self._adapter.load, Path(url))
        if not isinstance(model, BatchModel):
            raise TypeError("The adapter's needs_worker is False for a model that does not batch.")
        settings = self._environment
        queue, limits = settings.batch_queue, settings.batches
        runner: Runner = Batcher(model, self._work, queue, limits, self._clock, self._decoder)
        predictor: JointPrediction | None = getattr(model, "joint", None)
        if predictor is not None:
            if predictor not in self._joint:
                joint = JointBatching(predictor, self._work, queue, limits, self._clock)
                self._joint[predictor] = joint
            runner = self._joint[predictor].runner(model, runner)
        return ServableModel(name, url, runner, partial(self._in_thread, model.close))

    async def _load_in_workers(
        self, name: str, url: str, on_lost: Callable[[str], None] | None
    ) -> ServableModel:
        settings = self._environment
        python = await self._python_for(Path(url))
        pool = self._pools[python].workers
        dispatcher = WorkerDispatcher(settings.workers, settings.call_queue, lambda: pool.stuck)

        def lose() -> None:
            dispatcher.close(not_loaded(name))
            if on_lost is not None:
                on_lost(name)

        async def unload() -> None:
            await pool.unload(hosted)
            await self._close_if_unused(python)

        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self._close_if_unused, python)
            hosted = await pool.load(url, dispatcher, lose if on_lost else None)
            on_failure.pop_all()
        return ServableModel(name, url, dispatcher, unload)

    async def _python_for(self, model_dir: Path) -> str:
        """Ensures a pool for the interpreter. Raises RequirementsError."""
        lease: EnvironmentLease | None = None
        python = sys.executable
        if requirements := find_requirements(model_dir, self._environment):
            loop = asyncio.get_running_loop()
            acquire = self._environments.acquire
            spec = EnvironmentSpec(requirements.parent)
            lease = await loop.run_in_executor(self._installs, acquire, spec)
            python = lease.python
        if python not in self._pools:
            started, self._started = self._started, []
            if python != sys.executable:
                _kill(started)
                started = []
            workers = WorkerPool(self._environment, python, self._clock, started)
            self._pools[python] = _Pool(workers, lease)
        elif lease is not None:
            lease.release()
        return python

    async def _close_if_unused(self, python: str) -> None:
        """Closes an environment's pool after its last model; the server's own pool stays."""
        pool = self._pools.get(python)
        if pool is not None and pool.workers.empty and python != sys.executable:
            del self._pools[python]
            await pool.workers.close()
            if pool.lease is not None:
                pool.lease.release()

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._loads, function, *arguments)


def _kill(workers: Sequence[StartedWorker]) -> None:
    for worker in workers:
        worker.kill()


def _threads(environment: Environment) -> int:
    return _MAX_THREADS if environment.multi_model else 1


TRIM_SECONDS = 1.0
"""Trimming visits the whole heap for milliseconds or tens of them, too long to do for every
unloaded model.
"""


class HeapTrimmer:
    """Trims the heap once for all requests within `seconds`."""

    def __init__(self, seconds: float = TRIM_SECONDS) -> None:
        self._seconds = seconds
        self._trimming: asyncio.Task[None] | None = None

    def request(self) -> None:
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().create_task(self._trim())

    async def _trim(self) -> None:
        await asyncio.sleep(self._seconds)
        self._trimming = None
        await asyncio.to_thread(trim)
