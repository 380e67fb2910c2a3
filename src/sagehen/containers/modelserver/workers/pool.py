"""Starts and restarts an environment's workers and loads models into them."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.process import Worker, WorkerDied
from sagehen.containers.modelserver.workers.worker_queue import WorkerQueue

__all__ = ["Hosted", "WorkerPool"]

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
STEADY_SECONDS = 10.0
"""A process that lived this long restarts with the shortest delay."""
MOST_DEATHS = 5
"""Deaths in a row, without an answer, until the pool is stuck."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Hosted:
    """A model in the workers."""

    number: int
    folder: str
    caller: WorkerDispatcher
    on_lost: Callable[[], None] | None
    """Called when no worker has the model; if None, new workers load it again."""
    whole: bool = False
    """Loaded by all workers, so new ones load it too."""
    given_up: bool = False
    """Unwanted, however its load ends."""


class WorkerPool:
    """Runs `environment.workers` processes, each with every model of the pool."""

    def __init__(self, environment: Environment, python: str, clock: Clock = SYSTEM) -> None:
        self._environment = environment
        self._python = python
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._models: dict[int, Hosted] = {}
        self._numbers = 0
        self._deaths = 0
        count = environment.workers
        self._places: list[asyncio.Future[Worker]] = [self._awaited() for _ in range(count)]
        self._watches = [asyncio.create_task(self._keep_running(at)) for at in range(count)]

    @property
    def stuck(self) -> bool:
        if self._deaths < MOST_DEATHS:
            return False
        steady_since = self._clock.monotonic() - STEADY_SECONDS
        return not any(each.proved or each.since <= steady_since for each in self._running())

    @property
    def empty(self) -> bool:
        return not self._models

    async def load(
        self, folder: str, caller: WorkerDispatcher, on_lost: Callable[[], None] | None
    ) -> Hosted:
        """Raises what `Worker.load` raises; Unavailable if no process starts."""
        self._numbers += 1
        model = self._models[self._numbers] = Hosted(self._numbers, folder, caller, on_lost)
        loads = [self._load_at(at, model) for at in range(len(self._places))]
        results = await asyncio.gather(*loads, return_exceptions=True)
        for problem in results:
            if isinstance(problem, BaseException):
                await self.unload(model)
                raise problem
        if model.number not in self._models:
            raise WorkerDied("The worker process of the model's code ended after it had loaded.")
        model.whole = True
        return model

    async def unload(self, model: Hosted) -> None:
        """Requires a drained model; returns when no worker has it."""
        self._models.pop(model.number, None)
        unloads = [self._unload(worker, model) for worker in self._running()]
        await asyncio.gather(*unloads, return_exceptions=True)

    def give_up(self, folder: str) -> None:
        """Ends the workers that hang in loading, with all their models."""
        for model in [one for one in self._models.values() if one.folder == folder]:
            model.given_up = True
            for worker in self._running():
                if worker.is_asked_of(model.number):
                    worker.end("was ended: a model was not loaded in time")

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        workers = self._running()
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.ended for worker in workers))

    def _awaited(self) -> "asyncio.Future[Worker]":
        return self._loop.create_future()

    def _running(self) -> list[Worker]:
        return [place.result() for place in self._places if place.done()]

    async def _load_at(self, at: int, model: Hosted) -> None:
        worker = await self._running_at(at)
        try:
            await self._load(worker, model)
        except WorkerDied:
            if model.given_up or not worker.had_more_to_do:
                raise
            # Another model's code may have ended the worker.
            await self._load(await self._running_at(at), model)

    async def _running_at(self, at: int) -> Worker:
        while (worker := await asyncio.shield(self._places[at])).has_ended:
            await asyncio.shield(worker.ended)
            await asyncio.sleep(0)  # _keep_running replaces it
        return worker

    async def _load(self, worker: Worker, model: Hosted) -> None:
        await worker.load(model.number, model.folder)
        if worker.has_ended:
            raise WorkerDied("The worker process of the model's code ended after it had loaded.")
        timeout = self._environment.timeout_seconds
        lane = WorkerQueue(model.number, worker, timeout, model.caller)
        worker.lanes[model.number] = lane
        model.caller.add(lane)
        worker.proved |= model.on_lost is not None  # one of many models, so not at fault
        if model.number not in self._models:  # unloaded meanwhile
            await self._unload(worker, model)

    async def _unload(self, worker: Worker, model: Hosted) -> None:
        lane = worker.lanes.pop(model.number, None)
        if lane is not None:
            lane.close()
            model.caller.remove(lane)
            await worker.unload(model.number)

    async def _keep_running(self, at: int) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            started = self._clock.monotonic()
            how = await self._run_once(at)
            if self._clock.monotonic() - started >= STEADY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            log.warning("A worker process %s; another is started in %.1f s.", how, delay)
            await self._clock.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _run_once(self, at: int) -> str:
        """Returns how the process ended."""
        try:
            worker = self._start()
        except OSError as problem:
            self._deaths += 1
            self._refuse_waiting(at, problem)
            return f"cannot be started: {problem}"
        known = [model for model in self._models.values() if model.whole]
        self._places[at].set_result(worker)
        loading = asyncio.create_task(self._load_again(worker, known))
        try:
            how = await asyncio.shield(worker.ended)
        finally:
            loading.cancel()
        self._places[at] = self._awaited()
        self._deaths = 1 if worker.proved else self._deaths + 1
        self._lose(worker, how)
        return how

    def _start(self) -> Worker:
        given = self._environment.variables
        variables = {**os.environ, **given, **self._environment.thread_variables}
        return Worker(self._python, variables, uuid4().hex, self._clock.monotonic())

    def _refuse_waiting(self, at: int, problem: OSError) -> None:
        place = self._places[at]
        place.set_exception(Unavailable(f"No worker process can be started: {problem}"))
        place.exception()  # in case nothing awaits it
        self._places[at] = self._awaited()

    async def _load_again(self, worker: Worker, models: list[Hosted]) -> None:
        for model in models:
            try:
                await self._load(worker, model)
            except (SagehenError, MemoryError) as problem:
                log.warning("A model could not be loaded again.\n%s", problem)
                if model.on_lost is None:  # the worker's only model
                    worker.kill()

    def _lose(self, worker: Worker, how: str) -> None:
        for number, lane in worker.lanes.items():
            model = self._models.get(number)
            unbegun = lane.lost(how)
            if model is None:
                continue
            model.caller.remove(lane, unbegun)
            if model.caller.lanes == 0 and model.on_lost is not None:
                del self._models[number]
                model.on_lost()
