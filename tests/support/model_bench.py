"""A multi-model cache with everything around it: a container in memory, real artifacts."""

import asyncio
from pathlib import Path

from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.errors import ModelRefused, NoRoom
from sagehen.agent.multimodel.cache import ModelCache, ModelCachePlan
from sagehen.agent.multimodel.cached_models import ModelTallies
from sagehen.agent.multimodel.container_client import opaque_name
from sagehen.frame.s3_locations import Location

KIB = 1024
SIZE = 100 * KIB
"""Of the one file in each model."""


class Container:
    """Keeps the multi-model contract in memory."""

    def __init__(self) -> None:
        self.models: dict[str, str] = {}
        self.capacity = 1000
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.loading = asyncio.Event()
        self.unloading = asyncio.Event()
        self.lets_go = asyncio.Event()
        self.lets_go.set()

    async def load(self, model_name: str, folder: str, timeout_seconds: float) -> None:
        self.loads.append(model_name)
        self.loading.set()
        await self.gate.wait()
        if (Path(folder) / "refuse").exists():
            raise ModelRefused("ValueError: no such tree")
        if len(self.models) >= self.capacity:
            raise NoRoom("out of memory")
        self.models[model_name] = folder

    async def unload(self, model_name: str) -> None:
        self.unloads.append(model_name)
        self.unloading.set()
        await self.lets_go.wait()
        self.models.pop(model_name, None)

    async def holds(self, model_name: str) -> bool:
        return model_name in self.models


class Time:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Bench:
    """A cache with everything around it."""

    def __init__(
        self,
        folder: Path,
        artifacts: ArtifactCache,
        room: int,
        keep: bool,
        max_load_seconds: float,
    ) -> None:
        self.container = Container()
        self.clock = Time()
        self.memory = 0
        self.tallies = ModelTallies()
        self.folder = folder
        plan = ModelCachePlan(
            container_number=1,
            prefix=Location("bucket", "models/"),
            folder=folder,
            capacity_bytes=room,
            base_bytes=0,
            loads_at_once=4,
            fetches_at_once=8,
            max_load_seconds=max_load_seconds,
            keep=keep,
        )
        self.cache = ModelCache(
            plan,
            self.container,  # type: ignore[arg-type]
            artifacts,
            self.measure,
            self.tallies,
            self.clock,
        )

    async def measure(self) -> int:
        return self.memory

    async def load(self, *targets: str) -> None:
        """Load models, and give each back as one who has used it."""
        for target in targets:
            self.clock.seconds += 1
            loaded = await self.cache.load(target, 60)
            self.cache.release({loaded.model_name: 1})

    @property
    def held(self) -> set[str]:
        """The targets that the container holds, of those named by one letter."""
        return {letter for letter in "abcdefgh" if opaque_name(letter) in self.container.models}
