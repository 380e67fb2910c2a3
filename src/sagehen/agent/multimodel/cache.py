"""The models that one multi-model container holds in memory: loaded on demand, the least recently
used unloaded when memory is short.

A container's memory can be measured, a model's cannot. A model is charged with the size of its
files, or with the container's growth that other models do not account for, less a slack for
libraries and buffers. So after each load the sum of the charges is at least the memory in use. The
sum is compared with the limit: allocators keep freed memory, so by the measured figure the cache
could be emptied in vain.

A caller that had a model loaded has a lease: the model stays until the caller has used it, however
little memory there is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

from sagehen.agent.artifacts.artifacts import Artifact, ArtifactCache
from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.artifacts.folders import give_folder
from sagehen.agent.errors import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.instances.failures import failed_artifact
from sagehen.agent.messages import LoadedModel
from sagehen.agent.multimodel.cached_models import (
    LEASE_SECONDS,
    CachedModel,
    CachedModels,
    ModelTallies,
    ModelUnloader,
)
from sagehen.agent.multimodel.container_client import ContainerClient, check_target, opaque_name
from sagehen.base.clock import Clock
from sagehen.base.errors import ArtifactError, Unavailable
from sagehen.frame.s3_locations import Location

__all__ = ["ModelCache", "ModelCachePlan"]

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 60.0
SLACK_BYTES = 64 * 2**20
MIN_COST_BYTES = 64 * 1024
MAX_PENDING_LOADS = 1000
LEASE_CHECK_SECONDS = 1.0
"""between checks for expired leases, which no event reports"""


@dataclass(frozen=True, kw_only=True)
class ModelCachePlan:
    """Limits and paths of a cache."""

    container_number: int
    prefix: Location
    folder: Path
    """`/opt/ml/models`"""
    capacity_bytes: int
    """for all models together"""
    base_bytes: int
    """before the first model"""
    loads_at_once: int
    fetches_at_once: int
    """more than loads: a fetch mostly waits"""
    max_load_seconds: float
    """for waiting, fetching and loading"""
    keep: bool = True
    """False if `ModelCacheSetting` is `Disabled`: models leave after use"""
    container_folder: Path | None = None
    """`folder` as the container sees it, if by another path"""


class ModelCache:
    """The cache of one container; a restarted container gets a new one."""

    def __init__(
        self,
        plan: ModelCachePlan,
        container: ContainerClient,
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
        self._models = CachedModels(plan.capacity_bytes, clock)
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()
        """callers by model name"""
        self._fetch_slots = asyncio.Semaphore(plan.fetches_at_once)
        self._load_slots = asyncio.Semaphore(plan.loads_at_once)
        self._changed = asyncio.Event()
        self._unloader = ModelUnloader(
            self._models,
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
        return len(self._models)

    @property
    def charged_bytes(self) -> int:
        return self._models.charged_bytes

    async def load(
        self, target: str, wait_seconds: float, short_of_memory: bool = False
    ) -> LoadedModel:
        """Has the container hold `target`, loaded once for all waiting callers, and leases it.

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
        while self._models.find(name) is not None:  # may be a newer one
            if await self._lease_loaded(name):
                if short_of_memory:
                    await self._unload_others(name)
                return self._leased_model(name, hit=True, waited=0)
        waited = await self._wait_for_load(name, target, wait_seconds)
        return self._leased_model(name, hit=False, waited=waited)

    async def _wait_for_load(self, name: str, target: str, wait_seconds: float) -> float:
        """Waits for the model; returns the seconds waited."""
        started = self._clock.monotonic()
        task = self._ensure_loading(name, target)
        self._waiting[name] += 1
        try:
            # `wait_for` would cancel the loading at its timeout.
            done, _ = await asyncio.wait({task}, timeout=min(wait_seconds, MAX_WAIT_SECONDS))
        finally:
            self._waiting -= Counter([name])
        waited = self._clock.monotonic() - started
        self._tallies.waiting.add(waited)
        if not done:
            self.release({name: 1})  # if loaded this very moment
            raise ModelNotReady(
                f"Model {target} is still being loaded after {waited:.0f} s. Please try again."
            )
        if task.cancelled():
            raise Unavailable("The instance is not in service.")
        task.result()
        return waited

    def touch(self, names: Iterable[str]) -> None:
        self._models.touch(names)

    def release(self, counts: Mapping[str, int]) -> None:
        """Releases leases; `counts` maps models to numbers of leases."""
        for model in self._models.release(counts):
            if not self._plan.keep and not self._closed:
                self._unloader.start_unloading(model)
        self._changed.set()

    async def unload_idle(self) -> None:
        """Unloads models whose leases have expired, if the container has no model cache."""
        oldest = self._clock.monotonic() - LEASE_SECONDS
        while not self._plan.keep:
            model = next(self._models.idle(), None)
            if model is None or model.used_at >= oldest:
                return
            await self._unloader.unload(model)

    async def close(self) -> None:
        """The container must have ended."""
        self._closed = True
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        await self._unloader.close()

    def _leased_model(self, name: str, *, hit: bool, waited: float) -> LoadedModel:
        return LoadedModel(
            model_name=name, hit=hit, wait_microseconds=round(waited * 1e6), keep=self._plan.keep
        )

    async def _lease_loaded(self, name: str) -> bool:
        """Lends a model unless the container has dropped it by itself."""
        model = self._models.find(name)
        if model is None:
            return False
        self._models.lease(model)
        with ExitStack() as on_failure:
            on_failure.callback(self.release, {name: 1})
            held = await self._container.holds(name)
            on_failure.pop_all()
        if self._models.find(name) is not model:
            return False  # another caller has noticed
        if not held:
            await self._unloader.unload(model, is_lost=True)
        return held

    def _ensure_loading(self, name: str, target: str) -> asyncio.Task[None]:
        if self._closed:
            raise Unavailable("The instance is not in service.")
        task = self._loading.get(name)
        if task is None:
            if len(self._loading) >= MAX_PENDING_LOADS:
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
        prefix = self._plan.prefix
        data = ModelData(prefix.below(target), prefix=prefix)
        seconds = self._plan.max_load_seconds
        try:
            async with asyncio.timeout(seconds), self._fetch_slots:
                await self._unloader.wait_for(name)
                artifact = await self._fetch(data)
                async with AsyncExitStack() as on_failure:
                    on_failure.push_async_callback(self._unloader.discard, name, artifact)
                    async with self._load_slots:
                        cost = await self._install(name, data, artifact)
                    on_failure.pop_all()
                self._models.add(CachedModel(name, artifact, cost, self._waiting[name]))
        except TimeoutError as error:
            await self._unloader.unload_from_container(name)
            raise ModelRefused(f"Model {target} was not loaded within {seconds:.0f} s.") from error
        await self._trim(name)

    async def _fetch(self, data: ModelData) -> Artifact:
        try:
            return await self._artifacts.acquire(data, self._tallies.downloading.add)
        except ArtifactError as error:
            raise self._with_reason(data, error) from error

    def _with_reason(self, data: ModelData, error: ArtifactError) -> ArtifactError:
        number, url = self._plan.container_number, data.location.url
        return type(error)(failed_artifact(number, url, error))

    async def _install(self, name: str, data: ModelData, artifact: Artifact) -> int:
        """Has the container load an artifact; returns its cost in bytes."""
        need = max(artifact.size_bytes, MIN_COST_BYTES)
        await self._reserve(need)
        try:
            folder = self._plan.folder / name / "model"
            try:
                await self._artifacts.retry_on_full_disk(
                    lambda: asyncio.to_thread(
                        give_folder,
                        artifact.folder,
                        folder,
                        # A link to shared data would lead nowhere in an image.
                        artifact.size_bytes if self._plan.container_folder is None else 0,
                    )
                )
            except ArtifactError as error:
                raise self._with_reason(data, error) from error
            seen = (self._plan.container_folder or self._plan.folder) / name / "model"
            await self._load_in_container(name, str(seen))
            return await self._cost(need)
        finally:
            self._models.reserved_bytes -= need

    async def _reserve(self, need: int) -> None:
        models = self._models
        if need > models.capacity_bytes:
            raise NoRoom(
                f"The model has {need} bytes; all models together may have {models.capacity_bytes}."
            )
        while not models.fits(need):
            if not await self._unloader.unload_idle(1):
                await self._wait_for_change()
        models.reserved_bytes += need

    async def _load_in_container(self, name: str, folder: str) -> None:
        started = self._clock.monotonic()
        unload_next = 1
        while True:
            try:
                await self._container.load(name, folder, self._plan.max_load_seconds)
                break
            except NoRoom:
                if not self._models:
                    raise
            # Doubling: few attempts even among thousands of small models.
            if not await self._unloader.unload_idle(unload_next):
                await self._wait_for_change()
            unload_next *= 2
        self._tallies.loading.add(self._clock.monotonic() - started)

    async def _cost(self, need: int) -> int:
        grown = await self._measure() - self._plan.base_bytes
        others = self._models.charged_bytes + self._models.reserved_bytes - need
        return max(need, grown - others - SLACK_BYTES)

    async def _trim(self, name: str) -> None:
        """Unloads other models if a load cost more than was reserved."""
        while not self._models.fits(0):
            if not await self._unloader.unload_idle(1, keep_name=name):
                return

    async def _unload_others(self, name: str) -> None:
        """Unloads half of the idle models: the container does not say how much it lacks."""
        idle = sum(1 for _ in self._models.idle(keep_name=name))
        await self._unloader.unload_idle((idle + 1) // 2, keep_name=name)

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({changed}, timeout=LEASE_CHECK_SECONDS)
        finally:
            changed.cancel()
