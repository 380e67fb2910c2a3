"""The next step of one transform job, as pure functions.

An instance's id is made from the job's and a number, so that no row is needed for it: whoever holds
the lease finds a job's instances again, and knows which are nobody's.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sagehen.base.retry import LONGEST_BACKOFF_SECONDS, backoff_seconds
from sagehen.frame.container_specs import (
    InstanceOwner,
    InstanceReport,
    InstanceSpec,
    InstanceState,
)
from sagehen.services.sagemaker.hosting.reconciler.plan import Reports, Retry
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.transform import status
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.progress import RunnerMessage, absorb
from sagehen.services.sagemaker.transform.runner_messages import InstanceAddress, RunnerEnded

__all__ = [
    "JobFacts",
    "JobStep",
    "RunnerAction",
    "RunnerFacts",
    "instance_ids",
    "plan_job",
]

MAX_RUNNER_DEATHS = 10
"""in a row, without any progress between them"""
MAX_INSTANCE_RETRIES = 5
"""of each instance, while none of the job is in service"""
STOP_SECONDS = 20.0
"""for the runner to end uploads after StopTransformJob; then it is killed"""
VARIANT = "transform"
"""Instances have a variant's name; this one is never shown."""
_RUNNER_DIED = (
    f"The process that feeds the job died {MAX_RUNNER_DEATHS + 1} times in a row. It may need more "
    "memory than the setting transform_runner_memory_bytes allows; the server's log says more."
)
_NO_REASON = "The instance failed."


class RunnerAction(Enum):
    """The next step for a job's runner."""

    PREPARE = "prepare"
    """start the process, which takes about as long as the instances do, but not the job in it"""
    RUN = "run"
    """start one unless it runs, or its back-off lasts"""
    STOP = "stop"
    """ask it to end"""
    KEEP = "keep"
    """leave it alone, and start none"""
    REMOVE = "remove"
    """the job has ended"""


@dataclass(frozen=True, kw_only=True)
class RunnerFacts:
    """A job's runner process, as this control knows it."""

    is_running: bool = False
    """and knows its job"""
    deaths: int = 0
    """in a row, without progress"""
    messages: tuple[RunnerMessage, ...] = ()
    """that are not stored yet"""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The facts about one active job."""

    job: TransformJobRecord
    progress: TransformProgress
    reports: Reports | None
    """None while the agent is away"""
    runner: RunnerFacts
    retries: Mapping[str, Retry]
    """by id: instances that failed after the job had started"""
    now: float


@dataclass(frozen=True, kw_only=True)
class JobStep:
    """The next changes of one job, made in this order: rows, agent, runner."""

    job: TransformJobRecord
    progress: TransformProgress
    runner: RunnerAction
    instances: tuple[InstanceAddress, ...] | None = None
    """those in service; None while the agent is away"""
    start: tuple[InstanceSpec, ...] = ()
    """Asking the agent twice is harmless."""
    retries: Mapping[str, Retry] = field(default_factory=dict)
    wake_at: float | None = None


def instance_ids(job: TransformJobRecord) -> list[str]:
    return [_instance_id(job, number) for number in range(job.instance_count)]


def plan_job(facts: JobFacts) -> JobStep:
    """Plans a job's next step; repeated, this ends with the job."""
    progress = absorb(facts.progress, facts.runner.messages, facts.now)
    if facts.job.status is JobStatus.STOPPING:
        return _plan_stop(facts, progress)
    ended = _ended(facts, progress)
    if ended is not None:
        return JobStep(job=ended, progress=progress, runner=RunnerAction.REMOVE)
    return _plan_run(facts, progress)


def _plan_stop(facts: JobFacts, progress: TransformProgress) -> JobStep:
    job, now = facts.job, facts.now
    ends_at = (job.stop_requested_at or now) + STOP_SECONDS
    has_ended = any(isinstance(message, RunnerEnded) for message in facts.runner.messages)
    if facts.runner.is_running and not has_ended and now < ends_at <= now + STOP_SECONDS:
        return JobStep(job=job, progress=progress, runner=RunnerAction.STOP, wake_at=ends_at)
    return JobStep(job=status.stop(job, now), progress=progress, runner=RunnerAction.REMOVE)


def _ended(facts: JobFacts, progress: TransformProgress) -> TransformJobRecord | None:
    """Returns the job with its final status, if it has one now."""
    for message in facts.runner.messages:
        if isinstance(message, RunnerEnded):
            return _end(facts.job, progress, message, facts.now)
    if facts.runner.deaths > MAX_RUNNER_DEATHS:
        reason = status.failure_reason(status.INTERNAL_ERROR, _RUNNER_DIED)
        return status.fail(facts.job, reason, facts.now)
    failure = _instance_failure(facts)
    return None if failure is None else status.fail(facts.job, failure, facts.now)


def _end(
    job: TransformJobRecord, progress: TransformProgress, ended: RunnerEnded, now: float
) -> TransformJobRecord:
    error = ended.error or progress.failed_error
    if error is None:
        return status.complete(job, now)
    return status.fail(job, status.failure_reason(error, ended.message), now)


def _instance_failure(facts: JobFacts) -> str | None:
    """Returns why the job cannot go on.

    Before the first instance was in service, one that fails ends the job, as it does a new
    endpoint; later instances are started again, while any of them is left.
    """
    if facts.reports is None:
        return None
    reports = [facts.reports.get(instance_id) for instance_id in instance_ids(facts.job)]
    failed = [report for report in reports if _is_in(report, InstanceState.FAILED)]
    if not failed:
        return None
    reason = next((report.failure_reason for report in failed if report), None) or _NO_REASON
    if facts.job.started_at is None:
        return reason
    tries = [
        facts.retries[report.instance_id].attempts
        for report in failed
        if report and report.instance_id in facts.retries
    ]
    hopeless = len(failed) == len(tries) == len(reports)
    return reason if hopeless and min(tries) >= MAX_INSTANCE_RETRIES else None


def _plan_run(facts: JobFacts, progress: TransformProgress) -> JobStep:
    job = facts.job
    if facts.reports is None:
        return JobStep(job=job, progress=progress, runner=RunnerAction.KEEP, retries=facts.retries)
    ready = _ready(facts.reports, job)
    if ready and job.started_at is None:
        job = status.start(job, facts.now)
    runner = RunnerAction.PREPARE if job.started_at is None else RunnerAction.KEEP
    retries = _retries(facts) if job.started_at is not None else {}
    return JobStep(
        job=job,
        progress=progress,
        # A runner waits for instances by itself; the first one has to know when the job started.
        runner=RunnerAction.RUN if ready else runner,
        instances=ready,
        start=_to_start(facts, retries),
        retries=retries,
        wake_at=min((retry.at for retry in retries.values()), default=None),
    )


def _ready(reports: Reports, job: TransformJobRecord) -> tuple[InstanceAddress, ...]:
    found = (reports.get(instance_id) for instance_id in instance_ids(job))
    return tuple(
        InstanceAddress(
            instance_id=report.instance_id,
            address=report.address,
            containers=tuple(container.address for container in report.containers),
        )
        for report in found
        if report is not None
        and report.state is InstanceState.IN_SERVICE
        and report.address is not None
    )


def _retries(facts: JobFacts) -> dict[str, Retry]:
    """In memory only: a restarted control begins with the shortest wait."""
    retries: dict[str, Retry] = {}
    for instance_id in instance_ids(facts.job):
        retry = facts.retries.get(instance_id)
        report = (facts.reports or {}).get(instance_id)
        if _is_in(report, InstanceState.FAILED) and _is_due(retry, facts.now):
            attempts = retry.attempts + 1 if retry else 0
            retry = Retry(attempts=attempts, at=facts.now + backoff_seconds(attempts))
        if retry is not None and not _is_in(report, InstanceState.IN_SERVICE):
            retries[instance_id] = retry
    return retries


def _is_due(retry: Retry | None, now: float) -> bool:
    # A time further off means that the clock was set back.
    return retry is None or retry.at <= now or retry.at > now + LONGEST_BACKOFF_SECONDS


def _to_start(facts: JobFacts, retries: Mapping[str, Retry]) -> tuple[InstanceSpec, ...]:
    reports = facts.reports or {}
    again = {
        instance_id
        for instance_id, retry in retries.items()
        if instance_id in facts.retries and retry != facts.retries[instance_id]
    }
    return tuple(
        _instance_spec(facts.job, instance_id)
        for instance_id in instance_ids(facts.job)
        if instance_id in again
        or reports.get(instance_id) is None
        # Another control's pass may have stopped it.
        or _is_in(reports.get(instance_id), InstanceState.STOPPING)
    )


def _instance_spec(job: TransformJobRecord, instance_id: str) -> InstanceSpec:
    return InstanceSpec(
        instance_id=instance_id,
        endpoint_name=job.name,
        variant_name=VARIANT,
        instance_type=job.instance_type,
        containers=job.containers,
        owner=InstanceOwner.TRANSFORM_JOB,
    )


def _instance_id(job: TransformJobRecord, number: int) -> str:
    """Returns an id like EC2's, the same each time."""
    return "i-" + hashlib.sha256(f"{job.job_id}-{number}".encode()).hexdigest()[:17]


def _is_in(report: InstanceReport | None, state: InstanceState) -> bool:
    return report is not None and report.state is state
