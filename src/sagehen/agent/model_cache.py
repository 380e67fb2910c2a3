"""The models that one multi-model container holds in memory: loaded on demand, the least recently
used unloaded to make room.

What a model costs. A container's memory can be measured, a model's cannot. So each is booked with
the size of its files, and with what the container has grown since its start that no other model
accounts for, less a slack for what belongs to none (libraries imported at the first load, buffers).
After each load the books therefore hold at least what is really in use. They, not the measured
memory, are held against the limit: allocators keep freed memory, so that the measured figure need
not fall when a model is unloaded, and by it the cache could be emptied in vain.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sagehen.agent.artifacts import Artifact, ArtifactCache
from sagehen.agent.failures import failed_artifact
from sagehen.agent.faults import ModelNotReady, ModelRefused, NoRoom
from sagehen.agent.folders import give_folder, remove_tree
from sagehen.agent.messages import LoadedModel
from sagehen.agent.model_calls import ModelCalls
from sagehen.agent.model_data import Location, ModelData
from sagehen.agent.model_names import check_target, opaque_name
from sagehen.agent.tallies import ModelTallies
from sagehen.clock import Clock
from sagehen.errors import ArtifactError, Unavailable

__all__ = ["ModelCache", "ModelCachePlan"]

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 60.0
LONGEST_LOAD_SECONDS = 360.0
SLACK_BYTES = 64 * 2**20
LEAST_COST_BYTES = 64 * 1024
MOST_LOADS_UNDER_WAY = 1000
IDLE_SECONDS = 5.0
"""Without model cache, a model leaves when unused for so long: gateways tell once a second."""


@dataclass(frozen=True, kw_only=True)
class ModelCachePlan:
    """What a cache may do."""

    container_number: int
    """From 1, for messages."""
    prefix: Location
    folder: Path
    """The container's `/opt/ml/models`."""
    room_bytes: int
    """What all models together may be booked with."""
    base_bytes: int
    """The container's memory before the first model."""
    loads_at_once: int
    keep: bool = True
    """False where `ModelCacheSetting` is `Disabled`: models leave memory and disk after use."""


@dataclass
class _Loaded:
    name: str
    artifact: Artifact
    cost_bytes: int
    used_at: float


class ModelCache:
    """Of one container, from its start to its end: a restarted one begins with a new cache."""

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
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._unloading: dict[str, asyncio.Task[None]] = {}
        self._booked_bytes = 0
        self._reserved_bytes = 0
        self._turns = asyncio.Semaphore(plan.loads_at_once)
        self._closed = False

    @property
    def loaded_count(self) -> int:
        return len(self._loaded)

    @property
    def booked_bytes(self) -> int:
        return self._booked_bytes

    async def load(self, target: str, wait_seconds: float) -> LoadedModel:
        """Have the container hold `target`, loaded once for all who wait for it.

        Raises:
            Invalid: `target` cannot be a key below the prefix.
            ArtifactMissing, ArtifactRejected, ArtifactError: its object is not there, not a good
                archive, or cannot be stored.
            ModelNotReady: it is still being loaded after `wait_seconds`; loading goes on.
            NoRoom: it does not fit even with all others unloaded.
            ModelRefused: the container could not load it.
            Unavailable: the container or the object store is away.
        """
        check_target(target)
        name = opaque_name(target)
        if await self._is_held(name):
            return LoadedModel(model_name=name, hit=True, wait_microseconds=0)
        started = self._clock.monotonic()
        task = self._ensure_loading(name, target)
        # Not `wait_for`, which would end the loading when this wait ends.
        done, _ = await asyncio.wait({task}, timeout=min(wait_seconds, LONGEST_WAIT_SECONDS))
        waited = self._clock.monotonic() - started
        self._tallies.waiting.add(waited)
        if not done:
            raise ModelNotReady(
                f"Model {target} is still being loaded after {waited:.0f} s. Please try again."
            )
        if task.cancelled():
            raise Unavailable("The instance is not in service.")
        task.result()
        return LoadedModel(model_name=name, hit=False, wait_microseconds=round(waited * 1e6))

    def touch(self, names: Iterable[str]) -> None:
        """Models were used just now."""
        now = self._clock.monotonic()
        for name in names:
            loaded = self._loaded.get(name)
            if loaded is not None:
                loaded.used_at = now
                self._loaded.move_to_end(name)

    async def unload_idle(self) -> None:
        """Without model cache: unload what is used no longer. With it, nothing is done."""
        while self._loaded and not self._plan.keep:
            oldest = next(iter(self._loaded.values()))
            if self._clock.monotonic() - oldest.used_at < IDLE_SECONDS:
                return
            await self._unload_oldest()

    async def close(self) -> None:
        """The container is gone: let go of everything."""
        self._closed = True
        tasks = [*self._loading.values(), *self._unloading.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._loaded:
            _, loaded = self._loaded.popitem()
            await self._let_go(loaded.name, loaded.artifact)
        self._booked_bytes = 0

    async def _is_held(self, name: str) -> bool:
        """Whether the container has it: it is asked, since it may have dropped it by itself."""
        loaded = self._loaded.get(name)
        if loaded is None:
            return False
        held = await self._container.holds(name)
        if self._loaded.get(name) is not loaded:
            return False  # Unloaded while the container was asked.
        if held:
            self.touch([name])
        else:
            del self._loaded[name]
            self._booked_bytes -= loaded.cost_bytes
            await self._let_go(name, loaded.artifact)
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
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("A model was not loaded: %s", error, extra={"action": "model_not_loaded"})

    async def _load(self, name: str, target: str) -> None:
        data = ModelData(self._plan.prefix.below(target))
        try:
            async with asyncio.timeout(LONGEST_LOAD_SECONDS), self._turns:
                if name in self._unloading:
                    await asyncio.wait({self._unloading[name]})
                artifact = await self._fetch(data)
                try:
                    cost = await self._install(name, artifact)
                except BaseException:
                    await self._let_go(name, artifact)
                    raise
                self._loaded[name] = _Loaded(name, artifact, cost, self._clock.monotonic())
                self._booked_bytes += cost
        except TimeoutError as error:
            await self._withdraw(name)
            raise ModelRefused(
                f"Model {target} was not loaded within {LONGEST_LOAD_SECONDS:.0f} s."
            ) from error
        await self._trim()

    async def _fetch(self, data: ModelData) -> Artifact:
        try:
            return await self._artifacts.acquire(data, self._tallies.downloading.add)
        except ArtifactError as error:
            number, url = self._plan.container_number, data.location.url
            raise type(error)(failed_artifact(number, url, error)) from error

    async def _install(self, name: str, artifact: Artifact) -> int:
        """Put an artifact where the container finds it, have it loaded, return what it costs."""
        need = max(artifact.size_bytes, LEAST_COST_BYTES)
        await self._reserve(name, need)
        try:
            folder = self._plan.folder / name / "model"
            folder.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(give_folder, artifact.folder, folder, artifact.size_bytes)
            await self._have_loaded(name, str(folder))
            return await self._cost(need)
        finally:
            self._reserved_bytes -= need

    async def _reserve(self, name: str, need: int) -> None:
        """Wait until a model of that size has room, unloading others for it."""
        room = self._plan.room_bytes
        if need > room:
            raise NoRoom(f"The model has {need} bytes; all models together may have {room}.")
        while self._booked_bytes + self._reserved_bytes + need > room:
            if self._loaded:
                await self._unload_oldest()
            else:
                others = [task for other, task in self._loading.items() if other != name]
                await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        self._reserved_bytes += need

    async def _have_loaded(self, name: str, folder: str) -> None:
        started = self._clock.monotonic()
        unload_next = 1
        while True:
            try:
                await self._container.load(name, folder, LONGEST_LOAD_SECONDS)
                break
            except NoRoom:
                if not self._loaded:
                    raise
                # Twice as many each time: few attempts, even among thousands of small models.
                for _ in range(min(unload_next, len(self._loaded))):
                    await self._unload_oldest()
                unload_next *= 2
        self._tallies.loading.add(self._clock.monotonic() - started)

    async def _cost(self, need: int) -> int:
        grown = await self._measure() - self._plan.base_bytes
        of_others = self._booked_bytes + self._reserved_bytes - need
        return max(need, grown - of_others - SLACK_BYTES)

    async def _trim(self) -> None:
        """A load may have cost more than it was booked with; the model just loaded stays."""
        while self._booked_bytes > self._plan.room_bytes and len(self._loaded) > 1:
            await self._unload_oldest()

    async def _unload_oldest(self) -> None:
        if not self._loaded:
            return
        name, loaded = self._loaded.popitem(last=False)
        self._booked_bytes -= loaded.cost_bytes
        task = asyncio.create_task(self._unload(loaded))
        self._unloading[name] = task
        task.add_done_callback(lambda _: self._unloading.pop(name))
        # Shielded: it has left the books, so it must be seen through by somebody.
        await asyncio.shield(task)

    async def _unload(self, loaded: _Loaded) -> None:
        started = self._clock.monotonic()
        try:
            await self._withdraw(loaded.name)
            self._tallies.unloading.add(self._clock.monotonic() - started)
        finally:
            # Also when the container ends meanwhile, and this with it.
            await self._let_go(loaded.name, loaded.artifact)

    async def _withdraw(self, name: str) -> None:
        """Tell the container to drop a model. If it does not, the next load's cost shows it."""
        try:
            await self._container.unload(name)
        except (ModelRefused, Unavailable) as error:
            log.warning("A model was not unloaded: %s", error, extra={"action": "model_kept"})

    async def _let_go(self, name: str, artifact: Artifact) -> None:
        remove_tree(self._plan.folder / name)
        await self._artifacts.release(artifact, keep=self._plan.keep)
