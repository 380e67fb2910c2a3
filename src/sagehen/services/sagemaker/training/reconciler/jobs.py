"""One pass over the training jobs: ends, restarts and begins them.

All changes, events and `on_end` hooks are one transaction; the loop asks the agent after the
commit.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sagehen.base.clock import ClockJump
from sagehen.base.metrics import JOB_HOST
from sagehen.base.settings import Settings
from sagehen.frame import tags
from sagehen.frame.arns import ArnMaker
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.statistics import Series, Statistics, of_values
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.monitoring.cloudwatch import sample_store as samples
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.events import training_event
from sagehen.services.sagemaker.training.reconciler.agent_view import AgentView
from sagehen.services.sagemaker.training.reconciler.plan import (
    AttemptPresence,
    admit,
    give_up,
    job_spec,
    plan_job,
)
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.services.sagemaker.training.status import JobUpdate
from sagehen.state.database import Database
from sagehen.state.group_commit import attempt
from sagehen.state.leases import WriteCheck

__all__ = ["AttemptRequests", "JobLimits", "JobPass", "OnEnd", "add_metrics"]

log = logging.getLogger(__name__)


def add_metrics(
    connection: Connection,
    before: TrainingJobRecord,
    after: TrainingJobRecord,
    max_series: int,
) -> None:
    batch: dict[tuple[Series, int], Statistics] = {}
    for metric in set(after.metrics) - set(before.metrics):
        series = Series(JOB_HOST, metric.name, (("TrainingJobName", after.name),))
        value = of_values({metric.value: 1})
        batch.setdefault((series, int(metric.at // 60)), Statistics()).merge(value)
    if batch:
        samples.add(connection, batch, max_series)


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """Limits from the settings."""

    running: int
    restarts: int
    """after a lost agent, unless the job says otherwise"""
    series: int
    """of CloudWatch; metrics that would make more are dropped"""

    @classmethod
    def of(cls, settings: Settings) -> "JobLimits":
        return cls(
            running=settings.running_jobs,
            restarts=settings.max_job_restarts,
            series=settings.max_metric_series,
        )


MAX_DUE = 200
COUNT_SECONDS = 15.0

OnEnd = Callable[[Connection, TrainingJobRecord], None]
"""Called once for each job, in the transaction of its final status."""


@dataclass(frozen=True, kw_only=True)
class AttemptRequests:
    """Requests to the agent."""

    put: tuple[JobSpec, ...] = ()
    stop: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    newest: frozenset[str] = frozenset()
    """The newest attempts of all ACTIVE jobs."""
    again: bool = False
    gives_up_at: float | None = None
    settled: bool = False
    """nothing to do until an event"""


class JobPass:
    """Takes passes, one at a time.

    A pass reads only jobs that run, may start, or waited too long: its cost does not grow with how
    many wait or have ended.
    """

    def __init__(
        self,
        database: Database,
        lease: WriteCheck,
        arns: ArnMaker,
        limits: JobLimits,
        on_end: Sequence[OnEnd] = (),
    ) -> None:
        self._database = database
        self._lease = lease
        self._arns = arns
        self._limits = limits
        self._on_end = on_end
        self._counted_at = -math.inf
        self.counts: dict[tuple[JobStatus, JobStage], int] = {}
        self.restarts: Counter[SecondaryStatus] = Counter()
        """Failed attempts, by their jobs' next status: Interrupted or Restarting."""

    def run(self, view: AgentView, now: float) -> AttemptRequests:
        """Takes one pass.

        Raises:
            LeaseLost: another control has taken over; nothing was written.
        """
        with self._database.read() as connection:
            running = training_jobs.active(connection)
            busy = self._is_something_due(connection, running, view, now)
            settled = not (busy or running or view.reported) and not training_jobs.count_up_to(
                connection, 1, JobStage.WAITING
            )
            if now - self._counted_at >= COUNT_SECONDS:
                self._counted_at = now
                self.counts = training_jobs.counts(connection)
        if settled:
            return AttemptRequests(settled=True)
        if not busy:
            return self._requests(running, view, now)
        with self._database.write() as connection:
            self._lease.check(connection, now)
            updates, running, more = self._advance(connection, view, now)
        for update in updates:
            _log_update(update)
            self.restarts.update(_restarts(update))
        return self._requests(running, view, now, more)

    def leftovers(self, view: AgentView) -> AttemptRequests:
        """Returns requests to delete all attempts of this control's agent.

        Another control leads, and runs their jobs on its own agent: even an attempt that it has not
        given up, which it has never seen there.
        """
        with self._database.read() as connection:
            running = training_jobs.active(connection)
        newest = frozenset(job.attempt_id for job in running)
        return AttemptRequests(delete=tuple(view.reported), newest=newest)

    def shift_clock(self, jump: ClockJump) -> None:
        """Keeps waiting times unchanged when the clock was set.

        Raises:
            LeaseLost: as `run`.
        """
        with self._database.write() as connection:
            self._lease.check(connection, jump.now)
            training_jobs.shift_clock(connection, jump.seconds, jump.since, jump.now)
        about = {"action": "clock_set", "seconds": round(jump.seconds, 3)}
        log.warning("The clock was set: jobs wait for as long as before.", extra=about)

    def _is_something_due(
        self,
        connection: Connection,
        running: Sequence[TrainingJobRecord],
        view: AgentView,
        now: float,
    ) -> bool:
        if any(self._has_change(job, view, now) for job in running):
            return True
        if training_jobs.due(connection, now, 1):
            return True
        return bool(self._next_waiting(connection, running, view, now, most=1))

    def _has_change(self, record: TrainingJobRecord, view: AgentView, now: float) -> bool:
        return self._plan(record, view, now).record is not record

    def _plan(self, record: TrainingJobRecord, view: AgentView, now: float) -> JobUpdate:
        return plan_job(record, view.facts(record), now, self._limits.restarts)

    def _next_waiting(
        self,
        connection: Connection,
        running: Sequence[TrainingJobRecord],
        view: AgentView,
        now: float,
        *,
        most: int | None = None,
        lock: bool = False,
    ) -> list[TrainingJobRecord]:
        """Returns the jobs to start now; none without an agent.

        A job that waits for GPUs takes no slot. Others of GPU types would wait behind it, so only
        jobs that need no GPU may overtake it.
        """
        if not view.is_there:
            return []
        gpu_waiters = sum(view.waits_for_gpus(job) for job in running)
        free = self._limits.running - (len(running) - gpu_waiters)
        if free <= 0:
            return []
        limit = free if most is None else most
        return training_jobs.next_waiting(
            connection, now, limit, without_gpus=gpu_waiters > 0, lock=lock
        )

    def _advance(
        self, connection: Connection, view: AgentView, now: float
    ) -> tuple[list[JobUpdate], list[TrainingJobRecord], bool]:
        running = training_jobs.active(connection, lock=True)
        updates = self._take(connection, running, now, lambda job: self._plan(job, view, now))
        late = training_jobs.due(connection, now, MAX_DUE, lock=True)
        updates += self._take(connection, late, now, lambda job: give_up(job, now))
        running = _active_after(running, updates)
        first = self._next_waiting(connection, running, view, now, lock=True)
        begun = self._take(connection, first, now, lambda job: admit(job, now))
        running += [update.record for update in begun]
        updates += begun
        return updates, running, len(late) == MAX_DUE

    def _take(
        self,
        connection: Connection,
        records: Iterable[TrainingJobRecord],
        now: float,
        plan: Callable[[TrainingJobRecord], JobUpdate],
    ) -> list[JobUpdate]:
        """Plans and writes; a job that cannot be written does not stop the others."""
        updates = [update for update in map(plan, records) if update.record is not update.stored]
        moved = {update.record.arn for update in updates if update.moves}
        labels = tags.get_all(connection, moved) if moved else {}
        return [update for update in updates if self._is_written(connection, update, labels, now)]

    def _is_written(
        self,
        connection: Connection,
        update: JobUpdate,
        labels: Mapping[str, dict[str, str]],
        now: float,
    ) -> bool:
        own_tags = labels.get(update.record.arn, {})
        _, error = attempt(
            connection, lambda savepoint: self._write(savepoint, update, own_tags, now)
        )
        if error is not None:
            about = {"action": "job_not_moved", "job": update.record.name}
            log.error("A training job could not go on.", extra=about, exc_info=error)
        return error is None

    def _write(
        self, connection: Connection, update: JobUpdate, own_tags: dict[str, str], now: float
    ) -> None:
        training_jobs.save(connection, [update.record])
        add_metrics(connection, update.stored, update.record, self._limits.series)
        for state in update.moves:
            put_event(connection, training_event(state, own_tags, self._arns, now))
        if update.record.stage is JobStage.ENDED:
            for hook in self._on_end:
                hook(connection, update.record)

    def _requests(
        self,
        running: Sequence[TrainingJobRecord],
        view: AgentView,
        now: float,
        more: bool = False,
    ) -> AttemptRequests:
        newest = frozenset(job.attempt_id for job in running)
        times = (job.gives_up_at for job in running)
        return AttemptRequests(
            put=tuple(
                job_spec(job)
                for job in running
                if job.status is JobStatus.IN_PROGRESS
                and view.facts(job).presence
                in (AttemptPresence.UNCONFIRMED, AttemptPresence.ABSENT)
            ),
            stop=tuple(
                job.attempt_id
                for job in running
                if job.status is JobStatus.STOPPING and view.has_to_be_stopped(job.attempt_id)
            ),
            delete=tuple(view.reported - newest),
            newest=newest,
            again=more,
            gives_up_at=min((at for at in times if at is not None and at > now), default=None),
        )


def _active_after(
    running: Iterable[TrainingJobRecord], updates: Iterable[JobUpdate]
) -> list[TrainingJobRecord]:
    after = {update.record.job_id: update.record for update in updates}
    jobs = (after.get(job.job_id, job) for job in running)
    return [job for job in jobs if job.stage is JobStage.ACTIVE]


def _restarts(update: JobUpdate) -> list[SecondaryStatus]:
    begun_again = (SecondaryStatus.INTERRUPTED, SecondaryStatus.RESTARTING)
    return [move.secondary for move in update.moves if move.secondary in begun_again]


def _log_update(update: JobUpdate) -> None:
    before, after = update.stored, update.record
    if after.stage is before.stage:
        return
    about = {
        "action": f"job_{after.stage}",
        "job": after.name,
        "status": after.secondary.value,
        "attempt": after.attempt,
        "failure_reason": after.failure_reason,
    }
    level = logging.WARNING if after.failure_reason else logging.INFO
    log.log(level, "A training job has a new status.", extra=about)
