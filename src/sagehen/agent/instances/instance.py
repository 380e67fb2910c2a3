"""One instance: fetches its data, then starts, watches, restarts and stops its containers.

Starting ─► InService ─► Starting (it died or stopped answering) ─► …
    └─► Failed (it was never healthy)         any ─► Stopping ─► gone
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from sagehen.agent.artifacts.artifacts import Artifact
from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.artifacts.folders import give_folder, remove_tree
from sagehen.agent.errors import CannotStart, ContainerUnhealthy, InstanceFailed
from sagehen.agent.gpus.pool import GpuShare, NoCapacity
from sagehen.agent.instances.container_plan import ContainerPaths, give_python, runs_model_server
from sagehen.agent.instances.failures import (
    cannot_start,
    failed_artifact,
    failed_ping,
    no_capacity,
    service_failure,
)
from sagehen.agent.instances.running import RunningContainer, cause_of_end, start_container
from sagehen.agent.instances.usage import InstanceUsage
from sagehen.agent.messages import LoadedModel, Sample
from sagehen.agent.multimodel.caches import ModelCaches
from sagehen.agent.node import Node
from sagehen.base.concurrency import first_of
from sagehen.base.errors import ArtifactError, Invalid, Unavailable
from sagehen.base.retry import Backoff
from sagehen.containers.python_envs.install import RequirementsError
from sagehen.frame.container_specs import (
    ContainerReport,
    InstanceReport,
    InstanceSpec,
    InstanceState,
    write_end,
)
from sagehen.frame.gpus import GpuHolder, instance_fraction
from sagehen.frame.s3_locations import parse_location

__all__ = ["Instance"]

log = logging.getLogger(__name__)

STEP_SHOWN_AFTER_SECONDS = 2.0
ARTIFACT_RETRY_SECONDS = 2.0
IDLE_MODELS_SECONDS = 1.0


class Instance:
    """One instance, from its PUT to its DELETE.

    Args:
        on_change: called after each change of `report`.
    """

    def __init__(self, spec: InstanceSpec, node: Node, on_change: Callable[[], None]) -> None:
        self.spec = spec
        self.report = InstanceReport(
            instance_id=spec.instance_id, state=InstanceState.STARTING, owner=spec.owner
        )
        self._node = node
        self._on_change = on_change
        self._paths = [
            ContainerPaths(node.home, spec, number) for number in range(1, len(spec.containers) + 1)
        ]
        self._artifacts: list[Artifact] = []
        self._images: list[str] = []
        self._running: list[RunningContainer] = []
        self._run_id = ""
        self._setup_since, self._setup_seconds = node.clock.monotonic(), 0.0
        self._step = ""
        """what the start waits for now; "" while it waits for nothing"""
        self._step_since = 0.0
        self._models = ModelCaches(spec, node)
        self._usage = InstanceUsage(spec, node)
        self._gpus: GpuShare | None = None
        self._lifecycle: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def start(self, predecessor: "Instance | None" = None) -> None:
        """Starts once `predecessor`, of the same name, has stopped."""
        self._lifecycle = asyncio.create_task(self._run(predecessor))

    async def stop(self) -> None:
        """Lets the containers finish their requests, then ends them; takes about 40 s at most."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def load_model(
        self,
        target: str,
        wait_seconds: float,
        hostname: str | None = None,
        short_of_memory: bool = False,
    ) -> LoadedModel:
        return await self._models.load(target, wait_seconds, hostname, short_of_memory)

    @property
    def waits_for(self) -> str:
        """Says what the start waits for, and since when; "" where it has not waited for long."""
        seconds = self._node.clock.monotonic() - self._step_since
        if not self._step or seconds < STEP_SHOWN_AFTER_SECONDS:
            return ""
        name, instance_id = self.spec.endpoint_name, self.spec.instance_id
        return f"{name}, instance {instance_id}: {self._step}, for {seconds:.0f} s so far."

    def _begin(self, step: str) -> None:
        self._step, self._step_since = step, self._node.clock.monotonic()

    def touch_models(
        self, names: Iterable[str], released: Mapping[str, int], hostname: str | None = None
    ) -> None:
        self._models.touch(names, released, hostname)

    async def samples(self) -> list[Sample]:
        return await self._usage.samples(self._running, self._gpus, self._models.values())

    async def _end(self) -> None:
        self._change(InstanceState.STOPPING)
        if self._gpus is not None:
            self._gpus.leave()
        if self._work is not None:
            self._work.cancel()
        if self._lifecycle is not None:
            await self._lifecycle

    async def _run(self, predecessor: "Instance | None") -> None:
        """Runs until all containers have ended; must not be cancelled before."""
        self._work = asyncio.create_task(self._start_after(predecessor))
        await asyncio.wait({self._work})
        if self._work.cancelled():
            await self._finish_containers()
        await self._stop_containers(self._node.pace.unhealthy_stop_seconds)
        await self._release()

    async def _start_after(self, predecessor: "Instance | None") -> None:
        try:
            if predecessor is not None:
                await predecessor.stop()
            self._begin("it waits for a GPU")
            self._gpus = await self._reserve_gpus()
            self._begin("its model data is fetched and unpacked")
            await self._fetch_artifacts()
            await self._provide_libraries()
            await self._keep_running()
        except InstanceFailed as failed:
            self._fail(str(failed))
        except Exception as error:
            log.exception("An instance failed.", extra=self._about("instance_failed"))
            self._fail(service_failure(f"{type(error).__name__}: {error}"))

    async def _reserve_gpus(self) -> GpuShare:
        """Raises InstanceFailed."""
        spec = self.spec
        holder = GpuHolder.of_instance(spec)
        try:
            return await self._node.gpus.reserve(
                spec.instance_type,
                (holder,),
                instance_fraction([container.environment for container in spec.containers]),
                wait_seconds=self._node.pace.gpu_wait_seconds,
            )
        except NoCapacity as error:
            raise InstanceFailed(no_capacity(str(error))) from error
        except Invalid as error:
            raise InstanceFailed(cannot_start(spec, str(error))) from error

    async def _fetch_artifacts(self) -> None:
        for paths in self._paths:
            paths.base.mkdir(mode=0o700, parents=True, exist_ok=True)
            (paths.folder / "tmp").mkdir(exist_ok=True)
            url = paths.container.model_data_url
            if paths.container.multi_model:
                (paths.base / "models").mkdir(exist_ok=True)
            elif url is None:
                (paths.base / "model").mkdir(exist_ok=True)
            else:
                container = paths.container
                version = (container.model_data_compressed, container.model_data_etag)
                await self._provide(paths.base / "model", paths, url, *version)
            # Other containers than ours fetch their code themselves.
            if paths.code_url is not None and runs_model_server(paths, self._node.settings):
                await self._provide(paths.code, paths, paths.code_url)

    async def _provide_libraries(self) -> None:
        try:
            for paths in self._paths:
                image, environments = paths.container.image, self._node.image_environments
                self._begin(f"libraries of the image {image} are installed (logs/agent.log)")
                await environments.acquire(image)
                self._images.append(image)
                if runs_model_server(paths, self._node.settings):
                    await asyncio.to_thread(give_python, paths, environments.python(image))
        except RequirementsError as error:
            raise InstanceFailed(cannot_start(self.spec, str(error))) from error

    async def _provide(
        self,
        target: Path,
        paths: ContainerPaths,
        url: str,
        compressed: bool = True,
        etag: str | None = None,
    ) -> None:
        """Raises InstanceFailed."""
        seconds = self.spec.download_timeout_seconds
        try:
            data = ModelData(parse_location(url), compressed, etag)
            async with asyncio.timeout(seconds):
                artifact = await self._acquire(data)
            self._artifacts.append(artifact)
            await self._node.artifacts.retry_on_full_disk(
                lambda: asyncio.to_thread(give_folder, artifact.folder, target, artifact.size_bytes)
            )
        except TimeoutError:
            cause = Unavailable(f"It was not there within {seconds:g} s.")
            raise InstanceFailed(failed_artifact(paths.number, url, cause)) from None
        except (ArtifactError, Invalid) as error:
            raise InstanceFailed(failed_artifact(paths.number, url, error)) from error

    async def _acquire(self, data: ModelData) -> Artifact:
        while True:
            try:
                return await self._node.artifacts.acquire(data)
            except Unavailable as error:
                about = self._about("fetch")
                log.warning("Model data cannot be fetched now: %s", error, extra=about)
                await self._node.clock.sleep(ARTIFACT_RETRY_SECONDS)

    async def _keep_running(self) -> None:
        """Restarts the containers until a failure or a stop."""
        pace, clock = self._node.pace, self._node.clock
        backoff = Backoff(pace.first_restart_delay_seconds, pace.longest_restart_delay_seconds)
        was_healthy, retried = False, False
        while True:
            try:
                await self._start(may_fork=not retried)
            except ContainerUnhealthy as error:
                if not was_healthy and (retried or error.final):
                    raise InstanceFailed(str(error)) from error
                retried = True
                reason = str(error)
            else:
                was_healthy = True
                serving_since = clock.monotonic()
                reason = await self._serve()
                await asyncio.to_thread(self._note_end)
                if clock.monotonic() - serving_since > pace.steady_after_seconds:
                    backoff.reset()
            self._setup_since = clock.monotonic()
            self._change(InstanceState.STARTING)
            log.warning("An instance restarts: %s", reason, extra=self._about("restart"))
            await self._stop_containers(pace.unhealthy_stop_seconds)
            await clock.sleep(backoff.next_seconds())

    async def _start(self, *, may_fork: bool) -> None:
        self._run_id = uuid4().hex
        self._begin("its containers start, and have not answered /ping")
        gpus = None if self._gpus is None else self._gpus.hosts[0]
        try:
            for paths in self._paths:
                self._running.append(await start_container(paths, self._node, gpus, may_fork))
        except CannotStart as error:
            raise InstanceFailed(cannot_start(self.spec, str(error))) from error
        waits = [asyncio.create_task(running.wait_until_healthy()) for running in self._running]
        try:
            await self._watch_start(waits)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _watch_start(self, waits: list[asyncio.Task[None]]) -> None:
        """Raises ContainerUnhealthy if a container ends before all are healthy, or time is up."""
        exits, seconds = [each.exited for each in self._running], self.spec.startup_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                pending = set(waits)
                while pending and not any(exited.done() for exited in exits):
                    await first_of(*pending, *exits)
                    pending = {wait for wait in waits if not wait.done()}
        except TimeoutError:
            slow = next(
                running
                for running, wait in zip(self._running, waits, strict=True)
                if not wait.done()
            )
            cause = (
                f"/ping did not answer 200 within {seconds:g} s; {await slow.describe_unhealthy()}"
            )
            reason = failed_ping(slow.hostname, self.spec, cause)
            raise ContainerUnhealthy(reason, final=True) from None
        for running in self._running:
            if running.exited.done():
                reason = failed_ping(running.hostname, self.spec, running.describe_end())
                raise ContainerUnhealthy(reason, final=running.will_not_load)
        for wait in waits:
            wait.result()  # raises what has ended the wait: only its return means health

    async def _serve(self) -> str:
        """Returns the reason when a container ends or stops answering."""
        await self._models.open(self._running)
        self._setup_seconds = self._node.clock.monotonic() - self._setup_since
        self._change(InstanceState.IN_SERVICE)
        sweeping = asyncio.create_task(self._unload_idle_models())
        try:
            return await self._watch()
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

    def _note_end(self) -> None:
        """Records for gateways why their requests were lost."""
        cause = cause_of_end(self._running)
        with contextlib.suppress(OSError):
            write_end(self._node.home.container_end(self.spec.instance_id), self._run_id, cause)

    async def _unload_idle_models(self) -> None:
        while self._models.are_open:
            await self._node.clock.sleep(IDLE_MODELS_SECONDS)
            try:
                await self._models.unload_idle()
            except Exception:
                about = self._about("models_kept")
                log.exception("Idle models could not be unloaded.", extra=about)

    async def _watch(self) -> str:
        pace = self._node.pace
        failed, reported_slots = 0, self._slots()
        while True:
            exits = {running.exited for running in self._running}
            await asyncio.wait(
                exits, timeout=pace.ping_interval_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            for running in self._running:
                if running.exited.done():
                    return running.describe_end()
            healthy = await asyncio.gather(*(running.is_healthy() for running in self._running))
            failed = 0 if all(healthy) else failed + 1
            if (slots := self._slots()) != reported_slots:
                reported_slots = slots
                self._change(InstanceState.IN_SERVICE)
            if failed >= pace.pings_failed_in_a_row:
                problems = filter(None, (running.ping_problem for running in self._running))
                return "; ".join([f"/ping failed {failed} times in a row", *problems]) + "."

    def _slots(self) -> list[int | None]:
        return [running.slots for running in self._running]

    async def _finish_containers(self) -> None:
        """Ends them in pipeline order: a container's open requests need the next one."""
        clock, pace = self._node.clock, self._node.pace
        deadline = clock.monotonic() + pace.stop_seconds
        await self._models.close()
        for running in self._running:
            if running is not self._running[0]:
                await clock.sleep(pace.next_container_seconds)
            await running.end(max(0, deadline - clock.monotonic()), pace.answer_seconds)

    async def _stop_containers(self, grace_seconds: float) -> None:
        await self._models.close()
        await asyncio.gather(*(running.end(grace_seconds) for running in self._running))
        self._usage.keep_counts(self._running)
        self._running.clear()

    async def _release(self) -> None:
        if self._gpus is not None:
            self._gpus.release()
        while self._artifacts:
            await self._node.artifacts.release(self._artifacts.pop())
        while self._images:
            self._node.image_environments.release(self._images.pop())
        home, name = self._node.home, self.spec.instance_id
        await asyncio.to_thread(home.container_end(name).unlink, missing_ok=True)
        await asyncio.to_thread(remove_tree, home.instances / name)

    def _fail(self, reason: str) -> None:
        log.warning("An instance failed: %s", reason, extra=self._about("instance_failed"))
        self._change(InstanceState.FAILED, reason)

    def _change(self, state: InstanceState, failure_reason: str | None = None) -> None:
        if self._ending is not None and state is not InstanceState.STOPPING:
            return
        self._step = ""
        containers = tuple(
            ContainerReport(address=each.address, slots=each.slots) for each in self._running
        )
        self.report = InstanceReport(
            instance_id=self.spec.instance_id,
            state=state,
            address=containers[0].address if containers else None,
            failure_reason=failure_reason,
            slots=containers[0].slots if containers else None,
            run_id=self._run_id,
            containers=containers if len(containers) > 1 else (),
            owner=self.spec.owner,
            setup_seconds=self._setup_seconds,
        )
        self._on_change()

    def _about(self, action: str) -> dict[str, str]:
        return {
            "action": action,
            "endpoint": self.spec.endpoint_name,
            "variant": self.spec.variant_name,
            "instance": self.spec.instance_id,
        }
