"""Archives, object stores and containers for the agent's tests: small and real."""

import asyncio
import hashlib
import io
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.artifacts import ArtifactCache
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.model_data import StoredObject
from sagehen.agent.node import Node, Pace
from sagehen.clock import SYSTEM
from sagehen.domain.containers import ContainerSpec, InstanceSpec
from sagehen.domain.locations import Location
from sagehen.domain.objects import Attributes
from sagehen.errors import NotFound
from sagehen.home import Home, prepare_home
from sagehen.objects import LocalObjectStore
from sagehen.settings import Settings
from support.state import copied_state, settings_of

Entry = tarfile.TarInfo | tuple[str, bytes]


@pytest.fixture
def make_archive() -> Callable[..., bytes]:
    """Makes a tar.gz of entries: `(name, data)`, or a TarInfo without data."""

    def make(*entries: Entry, mode: str = "w:gz") -> bytes:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode=mode) as tar:
            for entry in entries:
                if isinstance(entry, tarfile.TarInfo):
                    tar.addfile(entry)
                else:
                    member = tarfile.TarInfo(entry[0])
                    member.size = len(entry[1])
                    tar.addfile(member, io.BytesIO(entry[1]))
        return data.getvalue()

    return make


class MemoryReader:
    """An object store in a dictionary, which counts what is read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.reading = asyncio.Event()
        self.gate: asyncio.Event | None = None
        """Reading waits for it, where there is one."""

    async def head(self, location: Location) -> StoredObject:
        if location.url not in self.objects:
            raise NotFound(f"no {location.url}")
        return self._describe(location.url)

    async def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        self.reads.append(location.url)
        self.reading.set()
        if self.gate is not None:
            await self.gate.wait()
        data = self.objects[location.url]
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    async def list(self, location: Location) -> AsyncIterator[StoredObject]:
        for url in sorted(self.objects):
            if url.startswith(location.url):
                yield self._describe(url)

    def _describe(self, url: str) -> StoredObject:
        data = self.objects[url]
        key = url.removeprefix("s3://").partition("/")[2]
        return StoredObject(key, len(data), hashlib.md5(data).hexdigest())


@pytest.fixture
def reader() -> MemoryReader:
    return MemoryReader()


QUICK = Pace(
    ping_interval_seconds=0.02,
    stop_seconds=5,
    unhealthy_stop_seconds=5,
    first_restart_delay_seconds=0.01,
)


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")


@pytest.fixture
def settings(home: Home) -> Settings:
    fake = Path(__file__).with_name("fake_container.py")
    return settings_of(
        home.path,
        images={"fake": [sys.executable, str(fake)], "broken": ["/nonexistent/serve"]},
    )


@pytest.fixture
async def node(settings: Settings, home: Home, reader: MemoryReader) -> Node:
    artifacts = ArtifactCache(
        home.artifacts,
        reader,
        most_artifact_bytes=2**20,
        most_unused_bytes=2**20,
        clock=SYSTEM,
    )
    artifacts.open()
    return Node(
        settings=settings,
        home=home,
        artifacts=artifacts,
        launcher=ProcessLauncher(),
        clock=SYSTEM,
        pace=QUICK,
    )


@pytest.fixture
def make_spec(home: Home) -> Callable[..., InstanceSpec]:
    """Makes the spec of an instance of one `fake` container; other members as given."""

    def make(instance_id: str = "i-1", *, startup_timeout_seconds: float = 60, **container: Any):
        environment = {"FAKE_CONTROL": str(home.path.parent)} | container.pop("environment", {})
        return InstanceSpec(
            instance_id=instance_id,
            endpoint_name="houses",
            variant_name="AllTraffic",
            instance_type="ml.m5.large",
            startup_timeout_seconds=startup_timeout_seconds,
            containers=(
                ContainerSpec(
                    **{"hostname": "primary", "image": "fake"} | container, environment=environment
                ),
            ),
        )

    return make


@pytest.fixture
def objects(empty_state: Path, home: Home) -> Iterator[LocalObjectStore]:
    """An object store with one bucket, `bucket`."""
    with copied_state(empty_state, home.path / "state.db") as database:
        store = LocalObjectStore(database, home.objects, SYSTEM)
        store.create_bucket("bucket")
        yield store


@pytest.fixture
def put_object(objects: LocalObjectStore) -> Callable[[str, bytes], None]:
    """Stores bytes in `bucket`."""

    def put(key: str, data: bytes) -> None:
        draft = objects.draft()
        draft.write(data)
        objects.put("bucket", key, draft, Attributes())

    return put
