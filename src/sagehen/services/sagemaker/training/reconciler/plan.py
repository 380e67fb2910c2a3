"""The next step of a training job, as pure functions of its row, its attempt and the time."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from sagehen.frame.job_specs import (
    ChannelSpec,
    CheckpointSpec,
    JobOutcome,
    JobPhase,
    JobReport,
    JobSpec,
    MetricDefinition,
    PhaseChange,
)
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.services.sagemaker.training.status import JobUpdate

__all__ = ["AttemptFacts", "AttemptPresence", "admit", "give_up", "job_spec", "plan_job"]

METRICS_SECONDS = 10.0
"""How much newer metrics must be to be written on their own."""

_AGENT_LOST = "InternalServerError: We encountered an internal error. Please try again."


class AttemptPresence(Enum):
    """Whether the agent has a job's newest attempt."""

    PRESENT = "there"
    UNKNOWN = "unknown"
    """The agent is away, or took the attempt and has not reported it."""
    UNCONFIRMED = "asked"
    """The request was not answered: the agent may have taken it."""
    ABSENT = "absent"
    """The agent never reported the attempt."""
    LOST = "lost"
    """The agent reported the attempt, and died with it."""


@dataclass(frozen=True, kw_only=True)
class AttemptFacts:
    """The facts about a job's newest attempt."""

    presence: AttemptPresence
    report: JobReport | None = None


def plan_job(
    record: TrainingJobRecord, facts: AttemptFacts, now: float, max_restarts: int
) -> JobUpdate:
    """Plans the next steps of an ACTIVE job.

    Args:
        now: seconds since the epoch.
        max_restarts: after a lost agent, unless the job says otherwise.
    """
    update = JobUpdate(record)
    if facts.report is not None:
        _follow(update, facts.report)
    elif facts.presence is AttemptPresence.LOST:
        _lose(update, now, max_restarts)
    if update.record.stage is not JobStage.ACTIVE:
        return update
    if _has_waited_too_long(update.record, now):
        update.stop(now, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
    if update.record.status is JobStatus.STOPPING and facts.presence is AttemptPresence.ABSENT:
        update.end(update.record.ends_as, now)
    return update


def admit(record: TrainingJobRecord, now: float) -> JobUpdate:
    update = JobUpdate(record)
    if record.secondary is SecondaryStatus.STARTING:
        # The job was created with this status; only the message changes.
        *past, last = record.transitions
        last = msgspec.structs.replace(last, message="Preparing the instances for training")
        update.note(transitions=(*past, last), modified_at=max(now, record.modified_at))
    else:
        update.move(SecondaryStatus.STARTING, now)
    update.note(
        stage=JobStage.ACTIVE,
        attempt=record.attempt + 1,
        phases=0,
        gives_up_at=record.wait_ends_at,
    )
    return update


def give_up(record: TrainingJobRecord, now: float) -> JobUpdate:
    update = JobUpdate(record)
    if record.wait_ends_at is not None and record.wait_ends_at <= now:
        update.stop(now, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
    else:
        message = "Training job was pending for longer than MaxPendingTimeInSeconds provided"
        update.stop(now, SecondaryStatus.STOPPED, message)
    update.end(update.record.ends_as, now)
    return update


def _has_waited_too_long(record: TrainingJobRecord, now: float) -> bool:
    """Returns False while uploading: the code has ended, and its results are on their way."""
    over = record.gives_up_at is not None and record.gives_up_at <= now
    return over and record.secondary is not SecondaryStatus.UPLOADING


def _follow(update: JobUpdate, report: JobReport) -> None:
    report = _with_finite_metrics(report)
    for change in report.phases[update.record.phases :]:
        _enter(update, report, change)
    if report.outcome is not None:
        _conclude(update, report, report.outcome)
    elif update.moves or _are_news(update.record, report):
        update.note(metrics=report.metrics or update.record.metrics)
    else:
        update.record = update.stored  # mere presence is not worth a write


def _enter(update: JobUpdate, report: JobReport, change: PhaseChange) -> None:
    status = SecondaryStatus(change.phase.value)
    if change.phase is JobPhase.UPLOADING and _ran_out(update.record, report, change):
        update.stop(change.at, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
    stopping = update.record.status is JobStatus.STOPPING
    if update.record.secondary is not status and (
        not stopping or change.phase is JobPhase.UPLOADING
    ):
        update.move(status, change.at)
    if change.phase is JobPhase.TRAINING and update.record.started_at is None:
        update.note(started_at=max(change.at, update.record.created_at))
    update.note(phases=update.record.phases + 1)


def _ran_out(record: TrainingJobRecord, report: JobReport, uploading: PhaseChange) -> bool:
    """Compares only the agent's times: its clock does not jump."""
    began = [phase.at for phase in report.phases if phase.phase is JobPhase.TRAINING]
    left = record.max_runtime_seconds - record.run_seconds
    return bool(began) and uploading.at - began[0] >= left


def _with_finite_metrics(report: JobReport) -> JobReport:
    """Drops NaN and infinity, which JSON and CloudWatch cannot hold."""
    finite = tuple(metric for metric in report.metrics if math.isfinite(metric.value))
    return msgspec.structs.replace(report, metrics=finite) if finite != report.metrics else report


def _are_news(record: TrainingJobRecord, report: JobReport) -> bool:
    known = max((metric.at for metric in record.metrics), default=0.0)
    newest = max((metric.at for metric in report.metrics), default=0.0)
    return newest - known >= METRICS_SECONDS


def _conclude(update: JobUpdate, report: JobReport, outcome: JobOutcome) -> None:
    at = update.record.transitions[-1].started_at if report.ended_at is None else report.ended_at
    record = update.record
    update.note(
        run_seconds=record.run_seconds + max(0.0, report.running_seconds),
        metrics=report.metrics or record.metrics,
        artifacts=report.artifacts,
    )
    stopping = record.status is JobStatus.STOPPING
    match outcome:
        case JobOutcome.COMPLETED:
            update.end(SecondaryStatus.COMPLETED, at)
        case JobOutcome.FAILED:
            update.end(SecondaryStatus.FAILED, at, report.failure_reason or "AlgorithmError: ")
        case JobOutcome.MAX_RUNTIME:
            update.end(SecondaryStatus.MAX_RUNTIME_EXCEEDED, at)
        case JobOutcome.LOST if not stopping and _may_retry(record, 0):
            _again(update, at, SecondaryStatus.RESTARTING, retries=record.retries + 1)
        case JobOutcome.LOST:
            update.end(SecondaryStatus.FAILED, at, report.failure_reason or _AGENT_LOST)
        case JobOutcome.INTERRUPTED if not stopping:
            _again(update, at, _interrupted(record))
        case _:
            update.stop(at, SecondaryStatus.STOPPED)
            update.end(update.record.ends_as, at)


def _lose(update: JobUpdate, at: float, max_restarts: int) -> None:
    record = update.record
    update.note(run_seconds=record.run_seconds + _lost_seconds(record, at))
    if record.status is JobStatus.STOPPING:
        update.end(record.ends_as, at)
    elif record.spot:
        _again(update, at, SecondaryStatus.INTERRUPTED)
    elif _may_retry(record, max_restarts):
        _again(update, at, SecondaryStatus.RESTARTING, retries=record.retries + 1)
    else:
        update.end(SecondaryStatus.FAILED, at, _AGENT_LOST)


def _lost_seconds(record: TrainingJobRecord, at: float) -> float:
    """Returns how long the code of a lost attempt ran, as far as known."""
    for transition in reversed(record.transitions):
        if transition.status is SecondaryStatus.STARTING:
            break
        if transition.status is SecondaryStatus.TRAINING:
            ran = (
                at if transition.ended_at is None else transition.ended_at
            ) - transition.started_at
            left = record.max_runtime_seconds - record.run_seconds
            return min(max(0.0, ran), left)
    return 0.0


def _may_retry(record: TrainingJobRecord, otherwise: int) -> bool:
    limit = otherwise if record.max_retries is None else record.max_retries
    return record.retries < limit


def _interrupted(record: TrainingJobRecord) -> SecondaryStatus:
    return SecondaryStatus.INTERRUPTED if record.spot else SecondaryStatus.RESTARTING


def _again(
    update: JobUpdate, at: float, status: SecondaryStatus, retries: int | None = None
) -> None:
    """Waits for another attempt, unless no run time is left."""
    update.move(status, at)
    if update.record.run_seconds >= update.record.max_runtime_seconds:
        update.stop(at, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
        update.end(SecondaryStatus.MAX_RUNTIME_EXCEEDED, at)
        return
    update.note(
        stage=JobStage.WAITING,
        phases=0,
        retries=update.record.retries if retries is None else retries,
    )


DEFAULT_VOLUME_GB = 30
"""The default of VolumeSizeInGB."""


def job_spec(record: TrainingJobRecord) -> JobSpec:
    """Returns the same spec for the same attempt."""
    definition = record.definition
    algorithm = definition["AlgorithmSpecification"]
    resources = definition["ResourceConfig"]
    output = definition["OutputDataConfig"]
    return JobSpec(
        attempt_id=record.attempt_id,
        job_name=record.name,
        job_arn=record.arn,
        image=algorithm["TrainingImage"],
        instance_type=resources["InstanceType"],
        instance_count=resources["InstanceCount"],
        volume_gb=resources.get("VolumeSizeInGB", DEFAULT_VOLUME_GB),
        entrypoint=tuple(algorithm.get("ContainerEntrypoint", ())),
        arguments=tuple(algorithm.get("ContainerArguments", ())),
        hyperparameters=definition.get("HyperParameters", {}),
        environment=definition.get("Environment", {}),
        channels=tuple(
            _channel(channel, algorithm["TrainingInputMode"])
            for channel in definition.get("InputDataConfig", ())
        ),
        output_uri=output["S3OutputPath"],
        compress_output=output.get("CompressionType", "GZIP") == "GZIP",
        checkpoint=_checkpoint(definition.get("CheckpointConfig")),
        metric_definitions=tuple(
            MetricDefinition(name=metric["Name"], regex=metric["Regex"])
            for metric in algorithm.get("MetricDefinitions", ())
        ),
        network_isolation=definition.get("EnableNetworkIsolation", False),
        runtime_seconds=record.max_runtime_seconds - record.run_seconds,
    )


def _channel(channel: dict[str, Any], input_mode: str) -> ChannelSpec:
    source = channel["DataSource"]["S3DataSource"]
    return ChannelSpec(
        name=channel["ChannelName"],
        s3_uri=source["S3Uri"],
        data_type=source["S3DataType"],
        distribution=source.get("S3DataDistributionType", "FullyReplicated"),
        input_mode=channel.get("InputMode", input_mode),
        content_type=channel.get("ContentType"),
        compression=channel.get("CompressionType", "None"),
        record_wrapper=channel.get("RecordWrapperType", "None"),
        shuffle_seed=channel.get("ShuffleConfig", {}).get("Seed"),
        attribute_names=tuple(source.get("AttributeNames", ())),
    )


def _checkpoint(config: dict[str, str] | None) -> CheckpointSpec | None:
    if config is None:
        return None
    path = config.get("LocalPath", "/opt/ml/checkpoints").rstrip("/")
    return CheckpointSpec(s3_uri=config["S3Uri"], local_path=path)
