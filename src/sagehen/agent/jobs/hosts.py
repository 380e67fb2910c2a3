"""The containers of a job, one per host: started, watched and ended together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sagehen.agent.errors import CannotStart
from sagehen.agent.gpus.pool import GpuShare
from sagehen.agent.instances.container_plan import refuse_isolation
from sagehen.agent.instances.limits import Utilization
from sagehen.agent.jobs.container_plan import plan_job_launch
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.failures import (
    JobFailed,
    cannot_run,
    exit_code,
    out_of_memory,
    script_failed,
)
from sagehen.agent.jobs.host_folders import HostPaths
from sagehen.agent.jobs.metrics import JobMetrics
from sagehen.agent.jobs.network import JobNetwork, claim_network
from sagehen.agent.jobs.stop_request import StopState
from sagehen.agent.launchers.launcher import NetworkPlan, Process
from sagehen.agent.messages import JobSample
from sagehen.base.concurrency import first_of

__all__ = ["JobHost", "JobHosts"]


SIGNALLED = 128
"""exit codes from here on report a signal"""


@dataclass(frozen=True)
class JobHost:
    """A started container of a job."""

    paths: HostPaths
    process: Process
    exited: asyncio.Task[int]

    utilization: Utilization
    gpus: GpuShare | None = None
    """of all hosts"""

    @property
    def status(self) -> int | None:
        return self.exited.result() if self.exited.done() else None

    async def samples(self) -> list[JobSample]:
        memory = await self.process.memory_bytes()
        seconds = await self.process.cpu_seconds()
        utilization = await asyncio.to_thread(self.utilization.read, memory, seconds)
        if self.gpus is not None:
            utilization |= self.gpus.utilization(self.paths.number - 1)
        job = self.paths.spec.job_name
        return [
            JobSample(name=name, job=job, host=self.paths.host, value=value)
            for name, value in utilization.items()
        ]

    @property
    def killed_by(self) -> int | None:
        """The signal that ended the container or a child; its last file may be incomplete."""
        code = exit_code(self.status or 0)
        return code - SIGNALLED if code >= SIGNALLED else None

    def describe_failure(self) -> str:
        """Says why the container failed. Reads the beginning of a file."""
        status, cause = self.exited.result(), self.process.ended_because
        failure = self.paths.failure
        if cause is not None:
            return out_of_memory(cause, status)
        return script_failed(failure, self.process.last_lines(), status)


class JobHosts:
    """The containers of a job."""

    def __init__(
        self, paths: Sequence[HostPaths], context: JobContext, metrics: JobMetrics
    ) -> None:
        self._paths = paths
        self._context = context
        self._metrics = metrics
        self._hosts: list[JobHost] = []
        self._network: JobNetwork | None = None

    @property
    def all(self) -> Sequence[JobHost]:
        return self._hosts

    @property
    def failed(self) -> JobHost | None:
        return next((host for host in self._hosts if host.status), None)

    async def start(self, gpus: GpuShare | None = None) -> None:
        """Starts all containers; on errors the caller ends those that were started.

        Args:
            gpus: of all hosts; None: each sees what the machine has.

        Raises:
            JobFailed: no program is named, or it cannot be run.
            OSError: a small file cannot be written.
        """
        self._network = claim_network()
        hosts_file = self._network.hosts_file([paths.host for paths in self._paths])
        for paths in self._paths:
            paths.hosts.write_text(hosts_file)
            await self._start(paths, self._network, gpus)
            if self.failed is not None:
                return

    async def _start(self, paths: HostPaths, network: JobNetwork, gpus: GpuShare | None) -> None:
        launcher = self._context.launcher
        base = launcher.container_base(paths.base)
        visible = None if gpus is None else gpus.hosts[paths.number - 1]
        python = self._context.image_environments.python(paths.spec.image)
        plan = plan_job_launch(
            paths, self._context.settings, base, network.master_port, visible, python
        )
        plan = replace(plan, listener=self._metrics.lines(), network=self._own_network(paths))
        try:
            process = await launcher.start(plan)
        except CannotStart as error:
            raise JobFailed(cannot_run(str(error))) from error
        utilization = Utilization(plan.limits, paths.home.path, self._context.clock)
        exited = asyncio.create_task(process.wait())
        self._hosts.append(JobHost(paths, process, exited, utilization, gpus))

    def _own_network(self, paths: HostPaths) -> NetworkPlan | None:
        """The network of an isolated job, which its hosts share. Raises JobFailed."""
        context = self._context
        if not paths.spec.network_isolation:
            return None
        if context.networks.missing is not None:
            if context.settings.network_isolation == "required":
                raise JobFailed(cannot_run(refuse_isolation(context.networks.missing)))
            return None
        first = self._hosts[0].process.pid if self._hosts else None
        return NetworkPlan(outgoing=False, shared_with=first)

    async def samples(self) -> list[JobSample]:
        running = [host for host in self._hosts if host.status is None]
        by_host = await asyncio.gather(*(host.samples() for host in running))
        return [sample for samples in by_host for sample in samples]

    async def wait(self) -> None:
        """Waits until all have ended, or one has failed."""
        while self.failed is None and (running := self._running()):
            await first_of(*running)

    async def end(self, stop: StopState, before_signal: Callable[[], Awaitable[None]]) -> None:
        """Terminates running containers; kills them after the grace of `stop`."""
        if self._running():
            await before_signal()
        for host in self._hosts:
            host.process.terminate()
        while self._running() and stop.grace_left() > 0:
            await stop.wait_or(self._running())
        if self._running():
            await before_signal()
        await self.kill()

    async def kill(self) -> None:
        for host in self._hosts:
            host.process.kill()
        await asyncio.gather(*(host.exited for host in self._hosts))
        if self._network is not None:
            self._network.close()

    def _running(self) -> list[asyncio.Task[int]]:
        return [host.exited for host in self._hosts if not host.exited.done()]
