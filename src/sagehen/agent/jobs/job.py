"""One attempt at a training job.

Starting ─► Downloading ─► Training ─► Uploading ─► an outcome
    └────────────┴─────────────┴─► an outcome: failed, told to end, or interrupted
"""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sagehen.agent.artifacts.folders import is_disk_full, remove_tree
from sagehen.agent.changes import Changes
from sagehen.agent.gpus.pool import GpuShare, NoCapacity
from sagehen.agent.jobs.container_plan import network_interface
from sagehen.agent.jobs.context import EndedReports, JobContext
from sagehen.agent.jobs.data.data import JobData
from sagehen.agent.jobs.data.transfers import DiskFull
from sagehen.agent.jobs.disk import watch_disk_space, watch_volumes
from sagehen.agent.jobs.failures import JobFailed, JobLost, cannot_run, exit_code, no_capacity
from sagehen.agent.jobs.host_folders import host_paths, prepare_folders, replace_python
from sagehen.agent.jobs.hosts import JobHosts
from sagehen.agent.jobs.metrics import JobMetrics
from sagehen.agent.jobs.slots import JobSlot
from sagehen.agent.jobs.stop_request import StopState
from sagehen.agent.messages import JobSample
from sagehen.base.concurrency import first_of
from sagehen.base.errors import Invalid
from sagehen.containers.python_envs.install import RequirementsError
from sagehen.frame.gpus import GpuHolder, instance_fraction
from sagehen.frame.job_specs import (
    JobOutcome,
    JobPhase,
    JobReport,
    JobSpec,
    PhaseChange,
    StopRequest,
)

__all__ = ["AttemptEnding", "JobAttempt"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AttemptEnding:
    outcome: JobOutcome
    reason: str | None = None
    exit_code: int | None = None
    fits: bool = True

    @property
    def uploads_outputs(self) -> bool:
        return self.fits and self.outcome is not JobOutcome.INTERRUPTED

    def with_lost_outputs(self, failure: JobFailed) -> "AttemptEnding":
        """Returns this ending for a job whose results could not be stored."""
        if not self.uploads_outputs:
            return self  # resumed, or failed already
        prefix = "" if self.reason is None else f"{self.reason} "
        return replace(self, outcome=JobOutcome.FAILED, reason=str(JobFailed(f"{prefix}{failure}")))


class _StopRequested(Exception):
    """A stop request came before the job's code ran."""

    def __init__(self, outcome: JobOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class JobAttempt:
    """One attempt, from its PUT to its outcome.

    Args:
        reports: keeps the report of the outcome.
        changes: announces each change of `report`.
        slot: released at the end of `run`.
    """

    def __init__(
        self,
        spec: JobSpec,
        context: JobContext,
        reports: EndedReports,
        changes: Changes,
        slot: JobSlot,
    ) -> None:
        self.spec = spec
        self._slot = slot
        self._context = context
        self._reports = reports
        self._changes = changes
        self._host_paths = host_paths(context.home, spec)
        self._metrics = JobMetrics(spec.metric_definitions, context.clock)
        self._gpus: GpuShare | None = None
        self._hosts = JobHosts(self._host_paths, context, self._metrics)
        self._data = JobData(self._host_paths, context)
        self._stop = StopState(context.clock, spec.stop_grace_seconds)
        self._started = (context.clock.now(), context.clock.monotonic())
        self._running_seconds = 0.0
        self._artifacts: tuple[str, ...] = ()
        self._task: asyncio.Task[AttemptEnding] | None = None
        self._killed = False
        self._has_libraries = False
        self._is_uploading = False
        """the code has ended; its results are uploaded"""
        self.report = JobReport(attempt_id=spec.attempt_id)
        self._record_phase(JobPhase.STARTING)

    @property
    def can_be_interrupted(self) -> bool:
        phase = self.report.phases[-1].phase
        return phase is not JobPhase.UPLOADING and self._stop.outcome is None

    def stop(self, request: StopRequest) -> None:
        """Code that has ended by itself is still uploaded."""
        if self.report.outcome is not None:
            return
        self._stop.request_stop(request)
        self.stop_waiting_for_disk()
        if self._is_uploading:
            self._data.limit_retries()
        self.report = msgspec.structs.replace(self.report, stopping=True)
        self._changes.announce()

    def stop_waiting_for_disk(self) -> None:
        """Stops waiting for a full disk; unstored results are lost."""
        self._data.stop_waiting_for_disk()

    def kill(self) -> None:
        """Ends the attempt at once, without an outcome."""
        self._killed = True
        if self._task is not None:
            self._task.cancel()

    async def samples(self) -> list[JobSample]:
        return await self._hosts.samples()

    async def run(self) -> None:
        """Runs the attempt to its end; must not be cancelled (see `kill`)."""
        # Not cancellable: the thread would go on.
        folders_made = asyncio.create_task(asyncio.to_thread(self._make_folders))
        await asyncio.wait({folders_made})
        self._task = asyncio.create_task(self._run(folders_made))
        if self._killed:
            self._task.cancel()
        await asyncio.wait({self._task})
        await self._hosts.kill()
        self._release_gpus()
        self._slot.release()
        if self._has_libraries:
            self._context.image_environments.release(self.spec.image)
        await self._data.halt()
        if await self._data.is_disk_low():
            # Saving the report needs disk space.
            await self._remove_folder()
        if not self._task.cancelled():
            await self._finish(self._task.result())
        await self._data.close()
        await self._remove_folder()

    async def _remove_folder(self) -> None:
        await asyncio.to_thread(remove_tree, self._context.home.jobs / self.spec.attempt_id)

    async def _run(self, folders_made: asyncio.Task[None]) -> AttemptEnding:
        try:
            folders_made.result()
            return await self._run_phases()
        except _StopRequested as request:
            return AttemptEnding(outcome=request.outcome)
        except JobFailed as failed:
            return AttemptEnding(outcome=JobOutcome.FAILED, reason=str(failed))
        except JobLost as lost:
            return AttemptEnding(outcome=JobOutcome.LOST, reason=str(lost))
        except OSError as error:
            if not is_disk_full(error):
                log.exception("A job was lost.", extra=self._about("job_lost"))
            return AttemptEnding(outcome=JobOutcome.LOST, reason=str(JobLost(f"{error}")))
        except Exception as error:
            log.exception("A job was lost.", extra=self._about("job_lost"))
            cause = f"{type(error).__name__}: {error}"
            return AttemptEnding(outcome=JobOutcome.LOST, reason=str(JobLost(cause)))

    async def _run_phases(self) -> AttemptEnding:
        await self._unless_stopped(self._reserve_gpus())
        self._enter_phase(JobPhase.DOWNLOADING)
        await self._unless_stopped(self._data.fetch())
        await self._unless_stopped(self._provide_libraries())
        try:
            ending = await self._train()
        finally:
            await self._hosts.kill()
            self._release_gpus()
        try:
            await self._upload_results(ending)
        except DiskFull as full:
            failure = await self._data.disk_full_failure(full)
            log.warning(
                "Some results of a job could not be stored: %s",
                failure,
                extra=self._about("not_kept"),
            )
            await self._remove_folder()  # Now: other jobs need the space.
            return ending.with_lost_outputs(failure)
        except (JobFailed, JobLost) as error:
            if ending.outcome not in (JobOutcome.FAILED, JobOutcome.INTERRUPTED):
                raise
            # The failure says more; a resumed job has recent checkpoints.
            log.warning(
                "Some results of a job could not be stored: %s",
                error,
                extra=self._about("not_kept"),
            )
        return ending

    async def _reserve_gpus(self) -> None:
        """Raises JobFailed."""
        spec = self.spec
        holders = [
            GpuHolder(training_job=spec.job_name, host=paths.host) for paths in self._host_paths
        ]
        try:
            self._gpus = await self._context.gpus.reserve(
                spec.instance_type,
                holders,
                instance_fraction([spec.environment]),
                wait_seconds=self._context.settings.job_gpu_patience_seconds,
                patient=True,
                on_wait=self._begin_gpu_wait,
            )
        except NoCapacity as error:
            raise JobFailed(no_capacity(str(error))) from error
        except Invalid as error:
            raise JobFailed(f"ClientError: {error}") from error
        if self.report.waits_for_gpus:
            # First: control must not start another job in the slot that this one waits for.
            self._note_gpu_wait(False)
            await self._slot.take_again()

    def _begin_gpu_wait(self) -> None:
        self._slot.release()
        self._note_gpu_wait(True)

    def _note_gpu_wait(self, waits: bool) -> None:
        self.report = msgspec.structs.replace(self.report, waits_for_gpus=waits)
        self._changes.announce()

    def _release_gpus(self) -> None:
        if self._gpus is not None:
            self._gpus.release()

    async def _provide_libraries(self) -> None:
        """Raises JobFailed."""
        environments, image = self._context.image_environments, self.spec.image
        try:
            await environments.acquire(image)
        except RequirementsError as error:
            raise JobFailed(cannot_run(str(error))) from error
        self._has_libraries = True
        python = environments.python(image)
        if python != sys.executable:
            for paths in self._host_paths:
                await asyncio.to_thread(replace_python, paths, python)

    async def _upload_results(self, ending: AttemptEnding) -> None:
        self._is_uploading = True
        if self._stop.outcome is not None:
            self._data.limit_retries()
        await self._data.free_disk(ending.uploads_outputs)
        if ending.outcome is not JobOutcome.FAILED:
            self._data.allow_waiting_for_disk()
        if ending.outcome is JobOutcome.INTERRUPTED:
            await self._data.save_checkpoints([host.killed_by for host in self._hosts.all])
            return
        self._enter_phase(JobPhase.UPLOADING)
        await self._data.save_checkpoints()
        if ending.fits:
            self._artifacts = await self._data.upload()

    def _make_folders(self) -> None:
        interface = network_interface(self.spec, self._context.settings)
        for paths in self._host_paths:
            prepare_folders(paths, interface)

    async def _train(self) -> AttemptEnding:
        clock = self._context.clock
        started = clock.monotonic()
        await self._hosts.start(self._gpus)
        self._enter_phase(JobPhase.TRAINING)
        side_tasks = [asyncio.create_task(self._data.keep_checkpoints())]
        if self.spec.metric_definitions:
            side_tasks.append(asyncio.create_task(self._publish_metrics()))
        try:
            ending = await self._watch()
            if ending.outcome is JobOutcome.FAILED:
                self._stop.limit_grace(self._context.pace.other_hosts_seconds)
            await self._hosts.end(self._stop, self._note_writers)
            return ending
        finally:
            for task in side_tasks:
                task.cancel()
            self._running_seconds = clock.monotonic() - started

    async def _note_writers(self) -> None:
        if self._stop.outcome is not JobOutcome.INTERRUPTED:
            return
        try:
            await self._data.note_writers()
        except OSError:  # also TimeoutError, on a slow disk
            log.exception(
                "The processes that write checkpoints could not be found before the signal.",
                extra=self._about("signal"),
            )

    async def _publish_metrics(self) -> None:
        while True:
            await self._context.clock.sleep(self._context.pace.metrics_seconds)
            if self._metrics.latest != self.report.metrics:
                self.report = msgspec.structs.replace(self.report, metrics=self._metrics.latest)
                self._changes.announce()

    async def _watch(self) -> AttemptEnding:
        clock = self._context.clock
        exits, _, _, *disks = await first_of(
            self._hosts.wait(),
            self._stop.wait(),
            clock.sleep(self.spec.runtime_seconds),
            watch_volumes(self._host_paths, clock),
            watch_disk_space(self._host_paths, clock),
        )
        if exits is not None:
            return await self._describe_end()
        if self._stop.outcome is not None:
            return AttemptEnding(outcome=self._stop.outcome)
        for disk in disks:
            if disk is not None:
                return AttemptEnding(
                    outcome=JobOutcome.FAILED, reason=str(disk.exception()), fits=False
                )
        return AttemptEnding(outcome=JobOutcome.MAX_RUNTIME)

    async def _describe_end(self) -> AttemptEnding:
        failed = self._hosts.failed
        if failed is None:
            return AttemptEnding(outcome=JobOutcome.COMPLETED, exit_code=0)
        reason = await asyncio.to_thread(failed.describe_failure)
        code = exit_code(failed.exited.result())
        return AttemptEnding(outcome=JobOutcome.FAILED, reason=reason, exit_code=code)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises _StopRequested if a stop request comes first."""
        done, _ = await first_of(work, self._stop.wait())
        if self._stop.outcome is not None:
            raise _StopRequested(self._stop.outcome)
        if done is not None:
            done.result()

    async def _finish(self, ending: AttemptEnding) -> None:
        """Saves the report before publishing it."""
        report = msgspec.structs.replace(
            self.report,
            outcome=ending.outcome,
            ended_at=self._now(),
            running_seconds=self._running_seconds,
            exit_code=ending.exit_code,
            failure_reason=ending.reason,
            metrics=self._metrics.latest,
            artifacts=self._artifacts,
        )
        try:
            await asyncio.to_thread(self._reports.save, report)
        except OSError:
            log.exception(
                "The report of an ended attempt could not be saved.",
                extra=self._about("report_not_kept"),
            )
        self.report = report
        log.info("An attempt has ended: %s.", ending.outcome, extra=self._about("job_ended"))
        self._changes.announce()

    def _enter_phase(self, phase: JobPhase) -> None:
        self._record_phase(phase)
        self._changes.announce_soon()

    def _record_phase(self, phase: JobPhase) -> None:
        change = PhaseChange(phase=phase, at=self._now())
        self.report = msgspec.structs.replace(self.report, phases=(*self.report.phases, change))

    def _now(self) -> float:
        """Unix time, by a clock that never jumps."""
        wall, monotonic = self._started
        return wall + self._context.clock.monotonic() - monotonic

    def _about(self, action: str) -> dict[str, str]:
        return {"action": action, "job": self.spec.job_name, "attempt": self.spec.attempt_id}
