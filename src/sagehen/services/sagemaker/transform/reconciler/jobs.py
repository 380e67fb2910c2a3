"""One pass over the transform jobs: stores progress, ends jobs and begins others.

All changes and events are one transaction; the loop asks the agent and the runners after the
commit.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sagehen.base.settings import Settings
from sagehen.frame import tags
from sagehen.frame.arns import ArnMaker
from sagehen.frame.container_specs import InstanceSpec, InstanceState
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.hosting.reconciler.plan import Reports, Retry
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.events import transform_event
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.progress import RunnerMessage, finished_keys
from sagehen.services.sagemaker.transform.reconciler.plan import (
    JobFacts,
    JobStep,
    RunnerAction,
    RunnerFacts,
    instance_ids,
    plan_job,
)
from sagehen.services.sagemaker.transform.status import admit
from sagehen.state.database import Database
from sagehen.state.leases import WriteCheck

__all__ = ["JobRequests", "TransformPass"]

log = logging.getLogger(__name__)

COUNT_SECONDS = 15.0
NO_RUNNER = RunnerFacts()


@dataclass(frozen=True, kw_only=True)
class JobRequests:
    """Requests to the agent and to the runners."""

    steps: tuple[JobStep, ...] = ()
    """of active jobs, and of those that have just ended"""
    stop: tuple[str, ...] = ()
    """ids of instances that no active job wants"""
    settled: bool = False
    """nothing to do until an event"""

    @property
    def start(self) -> tuple[InstanceSpec, ...]:
        return tuple(spec for step in self.steps for spec in step.start)

    @property
    def wake_at(self) -> float | None:
        return min((step.wake_at for step in self.steps if step.wake_at is not None), default=None)


@dataclass
class _Rows:
    jobs: list[TransformJobRecord]
    progress: dict[str, TransformProgress]
    admitted: set[str] = field(default_factory=set)
    """ids of jobs whose stage is to be written"""


class TransformPass:
    """Takes passes, one at a time.

    A pass reads only jobs that run or may start: its cost does not grow with how many wait or have
    ended.
    """

    def __init__(
        self, database: Database, lease: WriteCheck, arns: ArnMaker, settings: Settings
    ) -> None:
        self._database = database
        self._lease = lease
        self._arns = arns
        self._most_running = settings.max_running_transform_jobs
        self._retries: Mapping[str, Retry] = {}
        self._counted_at = -math.inf
        self.counts: dict[tuple[JobStatus, JobStage], int] = {}
        self.active: tuple[tuple[TransformJobRecord, TransformProgress], ...] = ()
        """the active jobs as of the last pass, for metrics"""

    def run(
        self, reports: Reports | None, runners: Mapping[str, RunnerFacts], now: float
    ) -> JobRequests:
        """Takes the next step of every job.

        Args:
            reports: of instances of transform jobs; None while the agent is away.
            runners: by job id.

        Raises:
            LeaseLost: another control has taken over; nothing was written.
        """
        with self._database.read() as connection:
            rows = self._read(connection, reports)
            if now - self._counted_at >= COUNT_SECONDS or rows.admitted:
                self._counted_at = now
                self.counts = transform_jobs.counts(connection)
            waits = transform_jobs.count_up_to(connection, 1, JobStage.WAITING)
        steps = [self._plan(job, rows, reports, runners, now) for job in rows.jobs]
        if any(
            _is_changed(job, step, rows, runners)
            for job, step in zip(rows.jobs, steps, strict=True)
        ):
            steps = self._write(reports, runners, now)
        self._retries = {key: retry for step in steps for key, retry in step.retries.items()}
        self.active = tuple(
            (step.job, step.progress) for step in steps if not step.job.status.is_final
        )
        settled = not (steps or waits or reports or runners) and reports is not None
        return JobRequests(steps=tuple(steps), stop=self._leftovers(reports), settled=settled)

    def _read(self, connection: Connection, reports: Reports | None, lock: bool = False) -> _Rows:
        jobs = transform_jobs.active(connection, lock)
        admitted: set[str] = set()
        free = self._most_running - len(jobs)
        if free > 0 and reports is not None:
            waiting = [admit(job) for job in transform_jobs.next_waiting(connection, free, lock)]
            admitted = {job.job_id for job in waiting}
            jobs = [*jobs, *waiting]
        progress = transform_jobs.progress_of(connection, (job.job_id for job in jobs))
        return _Rows(jobs, progress, admitted)

    def _plan(
        self,
        job: TransformJobRecord,
        rows: _Rows,
        reports: Reports | None,
        runners: Mapping[str, RunnerFacts],
        now: float,
    ) -> JobStep:
        return plan_job(
            JobFacts(
                job=job,
                progress=rows.progress[job.job_id],
                reports=reports,
                runner=runners.get(job.job_id, NO_RUNNER),
                retries=self._retries,
                now=now,
            )
        )

    def _write(
        self, reports: Reports | None, runners: Mapping[str, RunnerFacts], now: float
    ) -> list[JobStep]:
        """Plans again with locked rows, and writes."""
        with self._database.write() as connection:
            self._lease.check(connection, now)
            rows = self._read(connection, reports, lock=True)
            steps = [self._plan(job, rows, reports, runners, now) for job in rows.jobs]
            for job, step in zip(rows.jobs, steps, strict=True):
                messages = runners.get(job.job_id, NO_RUNNER).messages
                self._write_step(connection, rows, job, step, messages, now)
        for job, step in zip(rows.jobs, steps, strict=True):
            _log_step(job, step)
        return steps

    def _write_step(
        self,
        connection: Connection,
        rows: _Rows,
        before: TransformJobRecord,
        step: JobStep,
        messages: Sequence[RunnerMessage],
        now: float,
    ) -> None:
        job = step.job
        if job is not before or job.job_id in rows.admitted:
            transform_jobs.save(connection, job)
        if step.progress is not rows.progress[job.job_id]:
            transform_jobs.save_progress(connection, step.progress)
        keys = finished_keys(messages)
        if job.status.is_final:
            transform_jobs.forget_finished(connection, job.job_id)
        elif keys or step.progress.done_through != rows.progress[job.job_id].done_through:
            # Only data capture needs those that failed long ago, and there may be very many.
            keeps_failed = "DataCaptureConfig" in job.definition
            transform_jobs.save_finished(connection, step.progress, keys, keeps_failed=keeps_failed)
        if job.status is not before.status:
            own_tags = tags.get(connection, job.arn)
            put_event(connection, transform_event(job, own_tags, self._arns, now))

    def _leftovers(self, reports: Reports | None) -> tuple[str, ...]:
        """Rows are read after `reports`: jobs are in rows before an agent has their instances."""
        wanted = {instance_id for job, _ in self.active for instance_id in instance_ids(job)}
        return tuple(
            report.instance_id
            for report in (reports or {}).values()
            if report.instance_id not in wanted and report.state is not InstanceState.STOPPING
        )


def _is_changed(
    before: TransformJobRecord,
    step: JobStep,
    rows: _Rows,
    runners: Mapping[str, RunnerFacts],
) -> bool:
    job_id = before.job_id
    return (
        job_id in rows.admitted
        or step.progress is not rows.progress[job_id]
        or step.job is not before
        or bool(finished_keys(runners.get(job_id, NO_RUNNER).messages))
    )


def _log_step(before: TransformJobRecord, step: JobStep) -> None:
    after = step.job
    if after.status is before.status and after.started_at == before.started_at:
        return
    about = {
        "action": f"transform_{after.stage}",
        "job": after.name,
        "status": after.status.value,
        "failure_reason": after.failure_reason,
    }
    level = logging.WARNING if after.failure_reason else logging.INFO
    log.log(level, "A transform job has a new status.", extra=about)
    if step.runner is RunnerAction.REMOVE and step.progress.failed_objects:
        about = {"action": "transform_failed_objects", "job": after.name}
        log.warning(
            "%d objects of a transform job have no output.",
            step.progress.failed_objects,
            extra=about,
        )
