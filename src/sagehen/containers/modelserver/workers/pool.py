"""Starts and restarts an environment's workers and loads models into them."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.retry import Backoff
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.gpus import WORKER_GPU, visible_gpus
from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.process import (
    StartedWorker,
    Worker,
    WorkerDied,
    start_worker,
    worker_variables,
)
from sagehen.containers.modelserver.workers.worker_queue import WorkerQueue

__all__ = ["HostedModel", "WorkerPool"]

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0
STEADY_SECONDS = 10.0
"""A process that lived this long restarts with the shortest delay."""
MAX_DEATHS = 5
"""Deaths in a row, without an answer, until the pool is stuck."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class HostedModel:
    """A model in the workers."""

    number: int
    folder: str
    dispatcher: WorkerDispatcher
    on_lost: Callable[[], None] | None
    """Called when no worker has the model; if None, new workers load it again."""
    loaded: bool = False
    """Loaded by all workers, so new ones load it too."""
    aborted: bool = False
    """Unwanted, however its load ends."""


class WorkerPool:
    """Runs `environment.workers` processes, each with every model of the pool.

    Args:
        started: processes that run already, and are used first.
    """

    def __init__(
        self,
        environment: Environment,
        python: str,
        clock: Clock = SYSTEM,
        started: Iterable[StartedWorker] = (),
    ) -> None:
        self._started = list(started)
        self._environment = environment
        self._python = python
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._models: dict[int, HostedModel] = {}
        self._numbers = 0
        self._deaths = 0
        count = environment.workers
        self._workers: list[asyncio.Future[Worker]] = [self._new_slot() for _ in range(count)]
        self._watches = [asyncio.create_task(self._keep_running(at)) for at in range(count)]

    @property
    def stuck(self) -> bool:
        if self._deaths < MAX_DEATHS:
            return False
        steady_since = self._clock.monotonic() - STEADY_SECONDS
        return not any(
            worker.has_answered or worker.since <= steady_since for worker in self._running()
        )

    @property
    def empty(self) -> bool:
        return not self._models

    async def load(
        self, folder: str, dispatcher: WorkerDispatcher, on_lost: Callable[[], None] | None
    ) -> HostedModel:
        """Raises what `Worker.load` raises; Unavailable if no process starts."""
        self._numbers += 1
        model = self._models[self._numbers] = HostedModel(
            self._numbers, folder, dispatcher, on_lost
        )
        loads = [self._load_at(at, model) for at in range(len(self._workers))]
        results = await asyncio.gather(*loads, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                await self.unload(model)
                raise error
        if model.number not in self._models:
            raise WorkerDied("The worker process of the model's code ended after it had loaded.")
        model.loaded = True
        return model

    async def unload(self, model: HostedModel) -> None:
        """Requires a drained model; returns when no worker has it."""
        self._models.pop(model.number, None)
        unloads = [self._unload(worker, model) for worker in self._running()]
        await asyncio.gather(*unloads, return_exceptions=True)

    def abort_load(self, folder: str) -> None:
        """Ends the workers that hang in loading, with all their models."""
        for model in [hosted for hosted in self._models.values() if hosted.folder == folder]:
            model.aborted = True
            for worker in self._running():
                if worker.is_waiting_for(model.number):
                    worker.end("was ended: a model was not loaded in time")

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for started in self._started:
            started.kill()
        workers = self._running()
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.ended for worker in workers))

    def _new_slot(self) -> "asyncio.Future[Worker]":
        return self._loop.create_future()

    def _running(self) -> list[Worker]:
        return [slot.result() for slot in self._workers if slot.done()]

    async def _load_at(self, at: int, model: HostedModel) -> None:
        worker = await self._worker_at(at)
        try:
            await self._load(worker, model)
        except WorkerDied:
            if model.aborted or not worker.had_more_to_do:
                raise
            # Another model's code may have ended the worker.
            await self._load(await self._worker_at(at), model)

    async def _worker_at(self, at: int) -> Worker:
        while (worker := await asyncio.shield(self._workers[at])).has_ended:
            await asyncio.shield(worker.ended)
            await asyncio.sleep(0)  # _keep_running replaces it
        return worker

    async def _load(self, worker: Worker, model: HostedModel) -> None:
        await worker.load(model.number, model.folder)
        if worker.has_ended:
            raise WorkerDied("The worker process of the model's code ended after it had loaded.")
        timeout = self._environment.timeout_seconds
        queue = WorkerQueue(model.number, worker, timeout, model.dispatcher)
        worker.queues[model.number] = queue
        model.dispatcher.add(queue)
        worker.has_answered |= model.on_lost is not None  # one of many models, so not at fault
        if model.number not in self._models:  # unloaded meanwhile
            await self._unload(worker, model)

    async def _unload(self, worker: Worker, model: HostedModel) -> None:
        queue = worker.queues.pop(model.number, None)
        if queue is not None:
            queue.close()
            model.dispatcher.remove(queue)
            await worker.unload(model.number)

    async def _keep_running(self, at: int) -> None:
        backoff = Backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
        while True:
            started = self._clock.monotonic()
            ending = await self._run_once(at)
            if self._clock.monotonic() - started >= STEADY_SECONDS:
                backoff.reset()
            delay = backoff.next_seconds()
            log.warning("A worker process %s; another is started in %.1f s.", ending, delay)
            await self._clock.sleep(delay)

    async def _run_once(self, at: int) -> str:
        """Returns how the process ended."""
        try:
            worker = self._start(at)
        except OSError as error:
            self._deaths += 1
            self._fail_waiting(at, error)
            return f"cannot be started: {error}"
        models = [model for model in self._models.values() if model.loaded]
        self._workers[at].set_result(worker)
        loading = asyncio.create_task(self._reload(worker, models))
        try:
            ending = await asyncio.shield(worker.ended)
        finally:
            loading.cancel()
        self._workers[at] = self._new_slot()
        self._deaths = 1 if worker.has_answered else self._deaths + 1
        self._handle_loss(worker, ending)
        return ending

    def _start(self, at: int) -> Worker:
        now = self._clock.monotonic()
        if self._started:
            return Worker(self._started.pop(), now)
        variables = worker_variables(self._environment)
        if gpus := visible_gpus(self._environment.variables):
            variables[WORKER_GPU] = str(at % gpus)
        return Worker(start_worker(self._python, variables), now)

    def _fail_waiting(self, at: int, error: OSError) -> None:
        slot = self._workers[at]
        slot.set_exception(Unavailable(f"No worker process can be started: {error}"))
        slot.exception()  # in case nothing awaits it
        self._workers[at] = self._new_slot()

    async def _reload(self, worker: Worker, models: list[HostedModel]) -> None:
        for model in models:
            try:
                await self._load(worker, model)
            except (SagehenError, MemoryError) as error:
                log.warning("A model could not be loaded again.\n%s", error)
                if model.on_lost is None:  # the worker's only model
                    worker.kill()

    def _handle_loss(self, worker: Worker, ending: str) -> None:
        for number, queue in worker.queues.items():
            model = self._models.get(number)
            unstarted = queue.lost(ending)
            if model is None:
                continue
            model.dispatcher.remove(queue, unstarted)
            if model.dispatcher.worker_count == 0 and model.on_lost is not None:
                del self._models[number]
                model.on_lost()
