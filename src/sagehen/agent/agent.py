"""The agent: starts, watches and stops this node's instances."""

import asyncio
import contextlib
import logging
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sagehen.agent.artifacts.artifacts import ArtifactCache, Neighbours
from sagehen.agent.artifacts.fetch import StoredObject
from sagehen.agent.changes import Changes
from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.image_environments import ImageEnvironments
from sagehen.agent.instances.container_plan import ContainerPaths
from sagehen.agent.instances.instance import Instance
from sagehen.agent.instances.leftovers import clear_leftovers, prune_job_logs, prune_logs
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.jobs import JobAttempts
from sagehen.agent.launchers.fork_servers import ForkServers
from sagehen.agent.launchers.launcher import Launcher
from sagehen.agent.launchers.own_network import NO_NETWORKS, NetworkSupport
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.messages import InstanceList, JobSample, LoadedModel, Sample
from sagehen.agent.node import Node, Pace
from sagehen.agent.warm_images import WarmImages
from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.base.home import Home
from sagehen.frame.container_specs import InstanceOwner, InstanceSpec, InstanceState
from sagehen.frame.gpus import GpuList
from sagehen.frame.nodes import RunningSpecs
from sagehen.frame.s3_locations import Location
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.records import ListingQuery, ObjectInfo
from sagehen.services.s3.storage.store import OpenObject

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Agent", "StoredModelData"]

log = logging.getLogger(__name__)

OBJECTS_PER_PAGE = 1000


class StoredModelData:
    """Reads a blocking object store in threads."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def head(self, location: Location) -> StoredObject:
        info = await asyncio.to_thread(self._objects.head, location.bucket, location.key)
        return _describe(info)

    async def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        # One call for a small object: a thread call costs more than the reading.
        opened, chunks, chunk = await asyncio.to_thread(self._begin, location, etag)
        try:
            remaining = opened.info.size
            while chunk:
                remaining -= len(chunk)
                yield chunk
                chunk = await asyncio.to_thread(next, chunks, b"") if remaining > 0 else b""
        finally:
            opened.close()

    def _begin(self, location: Location, etag: str) -> tuple[OpenObject, Iterator[bytes], bytes]:
        opened = self._objects.open(location.bucket, location.key)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(opened.close)
            if opened.info.etag != etag:
                raise Unavailable(f"{location.url} was overwritten while it was fetched.")
            chunks = iter(opened.chunks())
            first = next(chunks, b"")
            on_failure.pop_all()
        return opened, chunks, first

    async def list(self, location: Location) -> AsyncIterator[StoredObject]:
        after, more = "", True
        while more:
            query = ListingQuery(prefix=location.key, after=after, limit=OBJECTS_PER_PAGE)
            page = await asyncio.to_thread(self._objects.list_page, location.bucket, query)
            for info in page.objects:
                yield _describe(info)
            after, more = page.last, page.truncated


def _describe(info: ObjectInfo) -> StoredObject:
    return StoredObject(info.key, info.size, info.etag)


THREADS = 32
"""for disk, object store, /proc"""
MAX_SOCKET_PATH_BYTES = 107

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


def _job_context(node: Node, objects: ObjectStore, check_lease: Callable[[], None]) -> JobContext:
    return JobContext(
        settings=node.settings,
        home=node.home,
        objects=objects,
        launcher=node.launcher,
        clock=node.clock,
        networks=node.networks,
        gpus=node.gpus,
        image_environments=node.image_environments,
        check_lease=check_lease,
    )


class Agent:
    """The instances of this node. They are not on disk: control puts them back after a restart."""

    def __init__(
        self,
        settings: "Settings",
        home: Home,
        objects: ObjectStore,
        clock: Clock,
        *,
        launcher: Launcher | None = None,
        gpus: GpuPool | None = None,
        pace: Pace | None = None,
        networks: NetworkSupport = NO_NETWORKS,
        fork_servers: ForkServers | None = None,
        problems: Callable[[], Awaitable[list[str]]] | None = None,
        check_lease: Callable[[], None] = lambda: None,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`check_lease` is that of JobContext."""
        artifacts = ArtifactCache(
            home.artifacts,
            StoredModelData(objects),
            max_artifact_bytes=settings.max_artifact_bytes,
            max_unused_bytes=settings.artifact_cache_bytes,
            clock=clock,
            neighbours=neighbours,
        )
        self._node = Node(
            settings=settings,
            home=home,
            artifacts=artifacts,
            launcher=launcher or ProcessLauncher(),
            clock=clock,
            gpus=gpus or GpuPool(settings, clock),
            pace=pace or Pace(),
            networks=networks,
            image_environments=ImageEnvironments(home, settings),
        )
        self.jobs = JobAttempts(_job_context(self._node, objects, check_lease))
        self._warm_images: WarmImages | None = None
        if fork_servers is not None:
            environments = self._node.image_environments
            self._warm_images = WarmImages(settings, environments, fork_servers)
        self._problems = problems
        self._instances: dict[str, Instance] = {}
        self._stops: set[asyncio.Task[None]] = set()
        self._changes = Changes(clock)
        self._stopping = False

    @property
    def artifacts(self) -> ArtifactCache:
        return self._node.artifacts

    async def start(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        await asyncio.to_thread(clear_leftovers, self._node.home)
        await asyncio.to_thread(self._node.artifacts.open)
        self._node.gpus.start()
        await self.jobs.start()

    async def stop(self) -> None:
        """Stops instances and interrupts jobs; takes about 40 s at most."""
        self._stopping = True
        self._changes.close()
        if self._warm_images is not None:
            await self._warm_images.close()
        self._node.image_environments.close()
        await asyncio.gather(
            self.jobs.close(), *(instance.stop() for instance in self._instances.values())
        )
        await asyncio.gather(*self._stops)
        await self._node.gpus.close()

    def list_gpus(self) -> GpuList:
        return self._node.gpus.report()

    def list_instances(self) -> InstanceList:
        reports = tuple(instance.report for instance in self._instances.values())
        return InstanceList(version=self._changes.version, instances=reports)

    async def wait_for_change(self, since: int, seconds: float) -> InstanceList:
        """Returns once the version is not `since`, or after `seconds`."""
        await self._changes.wait(since, seconds)
        return self.list_instances()

    async def put(self, spec: InstanceSpec) -> None:
        """Runs an instance as `spec` says, replacing one that has failed, is stopping or has
        another spec.

        Raises:
            Invalid: a name cannot be a file name, or there is no container.
            Unavailable: the agent is stopping.
        """
        if self._stopping:
            raise Unavailable("The agent is stopping.")
        _check(spec, self._node.home)
        old = self._instances.get(spec.instance_id)
        if old is not None and old.spec == spec and old.report.state in _RUNS:
            return
        log.info("Instance %s of %s starts.", spec.instance_id, spec.endpoint_name)
        instance = Instance(spec, self._node, self._changes.announce)
        self._instances[spec.instance_id] = instance
        running = frozenset(self._instances)
        instance.start(predecessor=old)
        self._changes.announce()
        await asyncio.to_thread(self._prune_logs, running)

    def _prune_logs(self, running: frozenset[str]) -> None:
        logs, most = self._node.home.logs, self._node.settings.max_transform_logs
        jobs = frozenset(
            instance.spec.endpoint_name
            for instance in list(self._instances.values())
            if instance.spec.owner is InstanceOwner.TRANSFORM_JOB
        )
        prune_logs(logs, running)
        prune_job_logs(logs / "transform-jobs", jobs, most)

    def delete(self, instance_id: str) -> None:
        """The instance leaves the list once stopped. Raises NotFound."""
        task = asyncio.create_task(self._remove(self._find(instance_id)))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    def stop_jobs(self) -> None:
        """Ends training jobs at once, and stops the instances of transform jobs."""
        self.jobs.kill_all()
        self._delete_all(InstanceOwner.TRANSFORM_JOB)

    def stop_instances(self) -> None:
        """Stops everything that runs here."""
        self.jobs.kill_all()
        for owner in InstanceOwner:
            self._delete_all(owner)

    def _delete_all(self, owner: InstanceOwner) -> None:
        for instance in list(self._instances.values()):
            if instance.spec.owner is owner:
                self.delete(instance.spec.instance_id)

    def specs(self) -> RunningSpecs:
        """The specs of everything that runs here."""
        instances = tuple(instance.spec for instance in self._instances.values())
        return RunningSpecs(instances=instances, jobs=self.jobs.specs())

    def container_address(self, instance_id: str, number: int) -> str:
        """Returns where a container is reached that runs now. Raises NotFound."""
        report = self._find(instance_id).report
        several = tuple(each.address for each in report.containers)
        addresses = several or (report.address,)
        address = addresses[number] if 0 <= number < len(addresses) else None
        if address is None or report.state not in _HAS_CONTAINERS:
            raise NotFound(f"The instance {instance_id} has no container {number} now.")
        return address

    async def load_model(
        self,
        instance_id: str,
        target_model: str,
        wait_seconds: float,
        hostname: str | None = None,
        short_of_memory: bool = False,
    ) -> LoadedModel:
        """See `ModelCaches.load`. Raises NotFound."""
        instance = self._find(instance_id)
        return await instance.load_model(target_model, wait_seconds, hostname, short_of_memory)

    def touch_models(
        self,
        instance_id: str,
        names: Iterable[str],
        released: Mapping[str, int],
        hostname: str | None = None,
    ) -> None:
        """Raises NotFound."""
        self._find(instance_id).touch_models(names, released, hostname)

    def keep_warm(self, images: Sequence[str]) -> None:
        """Prepares for starts of containers of these images, and of no others."""
        if self._warm_images is not None and not self._stopping:
            self._warm_images.request(images)

    async def samples(self) -> list[Sample]:
        """Measures the instances of endpoints."""
        return await self._samples_of(InstanceOwner.ENDPOINT)

    async def job_samples(self) -> list[JobSample]:
        """Measures the hosts of training jobs and the instances of transform jobs."""
        instances = await self._samples_of(InstanceOwner.TRANSFORM_JOB)
        of_transforms = (
            JobSample(
                name=sample.name,
                job=sample.endpoint,
                host=sample.instance,
                value=sample.value,
                transform=True,
            )
            for sample in instances
        )
        return [*await self.jobs.samples(), *of_transforms]

    async def _samples_of(self, owner: InstanceOwner) -> list[Sample]:
        instances = [each for each in self._instances.values() if each.spec.owner is owner]
        by_instance = await asyncio.gather(*(instance.samples() for instance in instances))
        return [sample for samples in by_instance for sample in samples]

    async def problems(self) -> list[str]:
        """Says what this node cannot do now, each with the remedy, and what instances that start
        wait for."""
        waits = [each.waits_for for each in self._instances.values()]
        found = await self._problems() if self._problems is not None else []
        return [*found, *filter(None, waits)]

    async def _remove(self, instance: Instance) -> None:
        await instance.stop()
        name = instance.spec.instance_id
        # a new instance may have taken the name
        if self._instances.get(name) is instance:
            del self._instances[name]
            self._changes.announce()

    def _find(self, instance_id: str) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None:
            raise NotFound(f"There is no instance {instance_id}.")
        return instance


_RUNS = (InstanceState.STARTING, InstanceState.IN_SERVICE)
_HAS_CONTAINERS = (InstanceState.IN_SERVICE, InstanceState.STOPPING)


def _check(spec: InstanceSpec, home: Home) -> None:
    hostnames = [container.hostname for container in spec.containers]
    names = (spec.instance_id, spec.endpoint_name, spec.variant_name, *hostnames)
    for name in names:
        if not _NAME.fullmatch(name):
            raise Invalid(f"{name[:100]!r} cannot be a name: letters, digits and hyphens only.")
    if not hostnames or len(set(hostnames)) != len(hostnames):
        raise Invalid("An instance needs containers with hostnames of their own.")
    socket = bytes(ContainerPaths(home, spec, len(hostnames)).socket)
    if len(socket) > MAX_SOCKET_PATH_BYTES:
        raise Invalid(f"The id {spec.instance_id} is too long for a socket in {home.run}.")
