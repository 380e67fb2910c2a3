"""One attempt at a training job.

Starting ─► Downloading ─► Training ─► Uploading ─► an outcome
    └────────────┴─────────────┴─► an outcome: failed, told to end, or interrupted
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sagehen.agent.artifacts.folders import is_disk_full, remove_tree
from sagehen.agent.changes import Changes
from sagehen.agent.jobs.context import EndedReports, JobContext
from sagehen.agent.jobs.data.data import JobData
from sagehen.agent.jobs.data.transfers import DiskFull
from sagehen.agent.jobs.disk import watch_room, watch_volumes
from sagehen.agent.jobs.failures import JobFailed, JobLost, exit_code
from sagehen.agent.jobs.host_folders import host_places, prepare_place
from sagehen.agent.jobs.hosts import JobHosts
from sagehen.agent.jobs.metrics import JobMetrics
from sagehen.agent.jobs.stop_request import StopState
from sagehen.agent.messages import JobSample
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
    def outputs_are_kept(self) -> bool:
        return self.fits and self.outcome is not JobOutcome.INTERRUPTED

    def without_room(self, why: JobFailed) -> "AttemptEnding":
        """Returns this ending for a job whose results could not be stored."""
        if not self.outputs_are_kept:
            return self  # resumed, or failed already
        said = "" if self.reason is None else f"{self.reason} "
        return replace(self, outcome=JobOutcome.FAILED, reason=str(JobFailed(f"{said}{why}")))


class _Told(Exception):
    """The job was told to end before its code ran."""


class JobAttempt:
    """One attempt, from its PUT to its outcome.

    Args:
        reports: keeps the report of the outcome.
        changes: announces each change of `report`.
    """

    def __init__(
        self,
        spec: JobSpec,
        around: JobContext,
        reports: EndedReports,
        changes: Changes,
    ) -> None:
        self.spec = spec
        self._around = around
        self._reports = reports
        self._changes = changes
        self._places = host_places(around.home, spec)
        self._metrics = JobMetrics(spec.metric_definitions, around.clock)
        self._hosts = JobHosts(self._places, around, self._metrics)
        self._data = JobData(self._places, around)
        self._orders = StopState(around.clock, spec.stop_grace_seconds)
        self._began = (around.clock.now(), around.clock.monotonic())
        self._running_seconds = 0.0
        self._artifacts: tuple[str, ...] = ()
        self._work: asyncio.Task[AttemptEnding] | None = None
        self._killed = False
        self._keeps = False
        """the code has ended; its results are uploaded"""
        self.report = JobReport(attempt_id=spec.attempt_id)
        self._note(JobPhase.STARTING)

    @property
    def can_be_interrupted(self) -> bool:
        phase = self.report.phases[-1].phase
        return phase is not JobPhase.UPLOADING and self._orders.outcome is None

    def stop(self, request: StopRequest) -> None:
        """Code that has ended by itself is still uploaded."""
        if self.report.outcome is not None:
            return
        self._orders.tell(request)
        self.give_up_room()
        if self._keeps:
            self._data.hurry()
        self.report = msgspec.structs.replace(self.report, stopping=True)
        self._changes.announce()

    def give_up_room(self) -> None:
        """Stops waiting for a full disk; unstored results are lost."""
        self._data.give_up_room()

    def kill(self) -> None:
        """Ends the attempt at once, without an outcome."""
        self._killed = True
        if self._work is not None:
            self._work.cancel()

    async def samples(self) -> list[JobSample]:
        return await self._hosts.samples()

    async def live(self) -> None:
        """Never cancelled itself."""
        # Not cancellable: the thread would go on.
        made = asyncio.create_task(asyncio.to_thread(self._make_places))
        await asyncio.wait({made})
        self._work = asyncio.create_task(self._run(made))
        if self._killed:
            self._work.cancel()
        await asyncio.wait({self._work})
        await self._hosts.kill()
        await self._data.halt()
        if await self._data.is_room_low():
            # Saving the report needs disk space.
            await self._remove_folder()
        if not self._work.cancelled():
            await self._end(self._work.result())
        await self._data.close()
        await self._remove_folder()

    async def _remove_folder(self) -> None:
        await asyncio.to_thread(remove_tree, self._around.home.jobs / self.spec.attempt_id)

    async def _run(self, made: asyncio.Task[None]) -> AttemptEnding:
        try:
            made.result()
            return await self._pass_through()
        except _Told:
            assert self._orders.outcome is not None
            return AttemptEnding(outcome=self._orders.outcome)
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

    async def _pass_through(self) -> AttemptEnding:
        self._enter(JobPhase.DOWNLOADING)
        await self._unless_told(self._data.fetch())
        try:
            ending = await self._train()
        finally:
            await self._hosts.kill()
        try:
            await self._keep_what_it_left(ending)
        except DiskFull as full:
            why = await self._data.no_room(full)
            log.warning("Not all is kept: %s", why, extra=self._about("not_kept"))
            await self._remove_folder()  # Now: other jobs need the space.
            return ending.without_room(why)
        except (JobFailed, JobLost) as error:
            if ending.outcome not in (JobOutcome.FAILED, JobOutcome.INTERRUPTED):
                raise
            # The failure says more; a resumed job has recent checkpoints.
            log.warning("Not all is kept: %s", error, extra=self._about("not_kept"))
        return ending

    async def _keep_what_it_left(self, ending: AttemptEnding) -> None:
        self._keeps = True
        if self._orders.outcome is not None:
            self._data.hurry()
        await self._data.make_room(ending.outputs_are_kept)
        if ending.outcome is not JobOutcome.FAILED:
            self._data.wait_for_room()
        if ending.outcome is JobOutcome.INTERRUPTED:
            await self._data.save_checkpoints([host.killed_by for host in self._hosts.all])
            return
        self._enter(JobPhase.UPLOADING)
        await self._data.save_checkpoints()
        if ending.fits:
            self._artifacts = await self._data.upload()

    def _make_places(self) -> None:
        for place in self._places:
            prepare_place(place)

    async def _train(self) -> AttemptEnding:
        clock = self._around.clock
        started = clock.monotonic()
        await self._hosts.start()
        self._enter(JobPhase.TRAINING)
        aside = [asyncio.create_task(self._data.keep_checkpoints())]
        if self.spec.metric_definitions:
            aside.append(asyncio.create_task(self._tell_metrics()))
        try:
            ending = await self._watch()
            if ending.outcome is JobOutcome.FAILED:
                self._orders.limit(self._around.pace.other_hosts_seconds)
            await self._hosts.end(self._orders, self._note_writers)
            return ending
        finally:
            for task in aside:
                task.cancel()
            self._running_seconds = clock.monotonic() - started

    async def _note_writers(self) -> None:
        if self._orders.outcome is not JobOutcome.INTERRUPTED:
            return
        try:
            await self._data.note_writers()
        except Exception:
            log.exception("Who writes checkpoints is not known.", extra=self._about("signal"))

    async def _tell_metrics(self) -> None:
        while True:
            await self._around.clock.sleep(self._around.pace.metrics_seconds)
            if self._metrics.found != self.report.metrics:
                self.report = msgspec.structs.replace(self.report, metrics=self._metrics.found)
                self._changes.announce()

    async def _watch(self) -> AttemptEnding:
        exits = asyncio.create_task(self._hosts.wait())
        told = asyncio.create_task(self._orders.wait())
        late = asyncio.create_task(self._around.clock.sleep(self.spec.runtime_seconds))
        volumes = asyncio.create_task(watch_volumes(self._places, self._around.clock))
        room = asyncio.create_task(watch_room(self._places, self._around.clock))
        tasks = (exits, told, late, volumes, room)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if exits.done():
                return await self._say_end()
            if self._orders.outcome is not None:
                return AttemptEnding(outcome=self._orders.outcome)
            for disk in (volumes, room):
                if disk.done():
                    return AttemptEnding(
                        outcome=JobOutcome.FAILED, reason=str(disk.exception()), fits=False
                    )
            return AttemptEnding(outcome=JobOutcome.MAX_RUNTIME)
        finally:
            for task in tasks:
                task.cancel()

    async def _say_end(self) -> AttemptEnding:
        failed = self._hosts.failed
        if failed is None:
            return AttemptEnding(outcome=JobOutcome.COMPLETED, exit_code=0)
        reason = await asyncio.to_thread(failed.say_failure)
        code = exit_code(failed.exited.result())
        return AttemptEnding(outcome=JobOutcome.FAILED, reason=reason, exit_code=code)

    async def _unless_told(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises _Told if told to end first."""
        working = asyncio.create_task(work)
        told = asyncio.create_task(self._orders.wait())
        try:
            await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
            if self._orders.outcome is not None:
                raise _Told
            working.result()
        finally:
            told.cancel()
            working.cancel()
            await asyncio.wait({working})

    async def _end(self, ending: AttemptEnding) -> None:
        """Saves the report before publishing it."""
        report = msgspec.structs.replace(
            self.report,
            outcome=ending.outcome,
            ended_at=self._now(),
            running_seconds=self._running_seconds,
            exit_code=ending.exit_code,
            failure_reason=ending.reason,
            metrics=self._metrics.found,
            artifacts=self._artifacts,
        )
        try:
            await asyncio.to_thread(self._reports.keep, report)
        except OSError:
            log.exception("A report is not on disk.", extra=self._about("report_not_kept"))
        self.report = report
        about = self._about("job_ended")
        log.info("An attempt has ended: %s.", ending.outcome, extra=about)
        self._changes.announce()

    def _enter(self, phase: JobPhase) -> None:
        self._note(phase)
        self._changes.announce_soon()

    def _note(self, phase: JobPhase) -> None:
        change = PhaseChange(phase=phase, at=self._now())
        phases = (*self.report.phases, change)
        self.report = msgspec.structs.replace(self.report, phases=phases)

    def _now(self) -> float:
        """Unix time, by a clock that never jumps."""
        wall, monotonic = self._began
        return wall + self._around.clock.monotonic() - monotonic

    def _about(self, action: str) -> dict[str, str]:
        return {"action": action, "job": self.spec.job_name, "attempt": self.spec.attempt_id}
