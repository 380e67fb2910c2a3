"""The models that one multi-model container holds in memory: loaded on demand, the least recently
used unloaded to make room.

A container's memory can be measured, a model's cannot. A model is booked with the size of its
files, or with the container's growth that other models do not account for, less a slack for
libraries and buffers. So after each load the booked sum is at least the memory in use. This sum is
held against the limit: allocators keep freed memory, so by the measured figure the cache could be
emptied in vain.

A caller that had a model loaded borrows it: the model stays until used, however little room there
is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.artifacts.folders import give_folder
from sagehen.agent.errors import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.instances.failures import failed_artifact
from sagehen.agent.messages import LoadedModel
from sagehen.agent.multimodel.container_client import ModelCalls, check_target, opaque_name
from sagehen.agent.multimodel.loaded_models import (
    LENT_SECONDS,
    CachedModel,
    LoadedModels,
    ModelTallies,
    ModelUnloader,
)
from sagehen.base.clock import Clock
from sagehen.base.errors import ArtifactError, Unavailable
from sagehen.frame.s3_locations import Location

__all__ = ["ModelCache", "ModelCachePlan"]

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 60.0
SLACK_BYTES = 64 * 2**20
LEAST_COST_BYTES = 64 * 1024
MOST_LOADS_UNDER_WAY = 1000
LOOK_SECONDS = 1.0
"""between checks for expired loans, which no event reports"""


@dataclass(frozen=True, kw_only=True)
class ModelCachePlan:
    """Limits and paths of a cache."""

    container_number: int
    prefix: Location
    folder: Path
    """`/opt/ml/models`"""
    room_bytes: int
    """for all models together"""
    base_bytes: int
    """before the first model"""
    loads_at_once: int
    fetches_at_once: int
    """more than loads: a fetch mostly waits"""
    longest_load_seconds: float
    """for waiting, fetching and loading"""
    keep: bool = True
    """False if `ModelCacheSetting` is `Disabled`: models leave after use"""


class ModelCache:
    """The cache of one container; a restarted container gets a new one."""

    def __init__(
        self,
        plan: ModelCachePlan,
        container: ModelCalls,
        artifacts: ArtifactCache,
        measure: Callable[[], Awaitable[int]],
        tallies: ModelTallies,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._container = container
        self._artifacts = artifacts
        self._measure = measure
        self._tallies = tallies
        self._clock = clock
        self._books = LoadedModels(plan.room_bytes, clock)
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()
        """callers by model name"""
        self._fetches = asyncio.Semaphore(plan.fetches_at_once)
        self._turns = asyncio.Semaphore(plan.loads_at_once)
        self._changed = asyncio.Event()
        self._exit = ModelUnloader(
            self._books,
            container,
            artifacts,
            tallies,
            clock,
            folder=plan.folder,
            keep=plan.keep,
            changed=self._changed,
        )
        self._closed = False

    @property
    def loaded_count(self) -> int:
        return len(self._books)

    @property
    def booked_bytes(self) -> int:
        return self._books.booked_bytes

    async def load(
        self, target: str, wait_seconds: float, short_of_memory: bool = False
    ) -> LoadedModel:
        """Has the container hold `target`, loaded once for all waiting callers, and lends it.

        Args:
            short_of_memory: the container holds the model but has no memory to answer; other models
                are unloaded.

        Raises:
            Invalid: `target` cannot be a key below the prefix.
            ArtifactMissing, ArtifactRejected, ArtifactError: the object is missing, not a valid
                archive, or cannot be stored.
            ModelNotReady: loading goes on after `wait_seconds`.
            NoRoom: the model does not fit even with all others unloaded.
            ModelRefused: the container could not load the model.
            Unavailable: the container or the object store cannot be reached.
        """
        check_target(target)
        name = opaque_name(target)
        while self._books.find(name) is not None:  # may be a newer one
            if await self._borrow(name):
                if short_of_memory:
                    await self._unload_others(name)
                return self._lent(name, hit=True, waited=0)
        waited = await self._wait_for_load(name, target, wait_seconds)
        return self._lent(name, hit=False, waited=waited)

    async def _wait_for_load(self, name: str, target: str, wait_seconds: float) -> float:
        """Waits for the model; returns the seconds waited."""
        started = self._clock.monotonic()
        task = self._ensure_loading(name, target)
        self._waiting[name] += 1
        try:
            # `wait_for` would cancel the loading at its timeout.
            done, _ = await asyncio.wait({task}, timeout=min(wait_seconds, LONGEST_WAIT_SECONDS))
        finally:
            self._waiting -= Counter([name])
        waited = self._clock.monotonic() - started
        self._tallies.waiting.add(waited)
        if not done:
            self.give_back({name: 1})  # if loaded this very moment
            raise ModelNotReady(
                f"Model {target} is still being loaded after {waited:.0f} s. Please try again."
            )
        if task.cancelled():
            raise Unavailable("The instance is not in service.")
        task.result()
        return waited

    def touch(self, names: Iterable[str]) -> None:
        self._books.touch(names)

    def give_back(self, counts: Mapping[str, int]) -> None:
        """Ends loans; `counts` maps models to numbers of loans."""
        for model in self._books.give_back(counts):
            if not self._plan.keep and not self._closed:
                self._exit.begin(model)
        self._changed.set()

    async def unload_idle(self) -> None:
        """Without model cache, unloads models whose loans have expired."""
        oldest = self._clock.monotonic() - LENT_SECONDS
        while not self._plan.keep:
            model = next(self._books.idle(), None)
            if model is None or model.used_at >= oldest:
                return
            await self._exit.see_off(model)

    async def close(self) -> None:
        """Must be called once the container has ended."""
        self._closed = True
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        await self._exit.close()

    def _lent(self, name: str, *, hit: bool, waited: float) -> LoadedModel:
        return LoadedModel(
            model_name=name, hit=hit, wait_microseconds=round(waited * 1e6), keep=self._plan.keep
        )

    async def _borrow(self, name: str) -> bool:
        """Lends a model unless the container has dropped it by itself."""
        model = self._books.find(name)
        if model is None:
            return False
        self._books.lend(model)
        try:
            held = await self._container.holds(name)
        except BaseException:
            self.give_back({name: 1})
            raise
        if self._books.find(name) is not model:
            return False  # another caller has noticed
        if not held:
            await self._exit.see_off(model, is_lost=True)
        return held

    def _ensure_loading(self, name: str, target: str) -> asyncio.Task[None]:
        if self._closed:
            raise Unavailable("The instance is not in service.")
        task = self._loading.get(name)
        if task is None:
            if len(self._loading) >= MOST_LOADS_UNDER_WAY:
                raise ModelNotReady(
                    f"{len(self._loading)} other models are being loaded. Please try again."
                )
            task = asyncio.create_task(self._load(name, target))
            task.add_done_callback(lambda done: self._end_loading(name, done))
            self._loading[name] = task
        return task

    def _end_loading(self, name: str, task: asyncio.Task[None]) -> None:
        del self._loading[name]
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("A model was not loaded: %s", error, extra={"action": "model_not_loaded"})

    async def _load(self, name: str, target: str) -> None:
        data = ModelData(self._plan.prefix.below(target))
        seconds = self._plan.longest_load_seconds
        try:
            async with asyncio.timeout(seconds), self._fetches:
                await self._exit.wait_for(name)
                artifact = await self._fetch(data)
                try:
                    async with self._turns:
                        cost = await self._install(name, data, artifact)
                except BaseException:
                    await self._exit.let_go(name, artifact)
                    raise
                self._books.add(CachedModel(name, artifact, cost, self._waiting[name]))
        except TimeoutError as error:
            await self._exit.withdraw(name)
            raise ModelRefused(f"Model {target} was not loaded within {seconds:.0f} s.") from error
        await self._trim(name)

    async def _fetch(self, data: ModelData) -> Artifact:
        try:
            return await self._artifacts.acquire(data, self._tallies.downloading.add)
        except ArtifactError as error:
            raise self._explained(data, error) from error

    def _explained(self, data: ModelData, error: ArtifactError) -> ArtifactError:
        number, url = self._plan.container_number, data.location.url
        return type(error)(failed_artifact(number, url, error))

    async def _install(self, name: str, data: ModelData, artifact: Artifact) -> int:
        """Has the container load an artifact; returns its cost in bytes."""
        need = max(artifact.size_bytes, LEAST_COST_BYTES)
        await self._reserve(need)
        try:
            folder = self._plan.folder / name / "model"
            try:
                await self._artifacts.with_room(
                    lambda: asyncio.to_thread(
                        give_folder, artifact.folder, folder, artifact.size_bytes
                    )
                )
            except ArtifactError as error:
                raise self._explained(data, error) from error
            await self._have_loaded(name, str(folder))
            return await self._cost(need)
        finally:
            self._books.reserved_bytes -= need

    async def _reserve(self, need: int) -> None:
        books = self._books
        if need > books.room_bytes:
            raise NoRoom(
                f"The model has {need} bytes; all models together may have {books.room_bytes}."
            )
        while not books.fits(need):
            if not await self._exit.first(1):
                await self._change()
        books.reserved_bytes += need

    async def _have_loaded(self, name: str, folder: str) -> None:
        started = self._clock.monotonic()
        unload_next = 1
        while True:
            try:
                await self._container.load(name, folder, self._plan.longest_load_seconds)
                break
            except NoRoom:
                if not self._books:
                    raise
            # Doubling: few attempts even among thousands of small models.
            if not await self._exit.first(unload_next):
                await self._change()
            unload_next *= 2
        self._tallies.loading.add(self._clock.monotonic() - started)

    async def _cost(self, need: int) -> int:
        grown = await self._measure() - self._plan.base_bytes
        of_others = self._books.booked_bytes + self._books.reserved_bytes - need
        return max(need, grown - of_others - SLACK_BYTES)

    async def _trim(self, name: str) -> None:
        """Unloads other models if a load cost more than was reserved."""
        while not self._books.fits(0):
            if not await self._exit.first(1, besides=name):
                return

    async def _unload_others(self, name: str) -> None:
        """Unloads half of the idle models: the container does not say how much it lacks."""
        idle = sum(1 for _ in self._books.idle(besides=name))
        await self._exit.first((idle + 1) // 2, besides=name)

    async def _change(self) -> None:
        self._changed.clear()
        waiting = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
        finally:
            waiting.cancel()
