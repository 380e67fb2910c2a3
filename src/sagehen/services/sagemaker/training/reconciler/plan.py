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
from sagehen.services.sagemaker.training.records import (
    JobStage,
    JobStatus,
    SecondaryStatus,
    TrainingJobRecord,
)
from sagehen.services.sagemaker.training.status import Course

__all__ = ["AttemptPresence", "Sight", "admit", "give_up", "job_spec", "plan_job"]

METRICS_SECONDS = 10.0
"""How much newer metrics must be to be written on their own."""

_AGENT_LOST = "InternalServerError: We encountered an internal error. Please try again."


class AttemptPresence(Enum):
    """Whether the agent has a job's newest attempt."""

    THERE = "there"
    UNKNOWN = "unknown"
    """The agent is away, or took the attempt and has not reported it."""
    ASKED = "asked"
    """The request was not answered: the agent may have taken it."""
    ABSENT = "absent"
    """The agent never reported the attempt."""
    LOST = "lost"
    """The agent reported the attempt, and died with it."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The facts about a job's newest attempt."""

    presence: AttemptPresence
    report: JobReport | None = None


def plan_job(record: TrainingJobRecord, sight: Sight, now: float, max_restarts: int) -> Course:
    """Plan the next steps of an ACTIVE job.

    Args:
        now: seconds since the epoch.
        max_restarts: after a lost agent, unless the job says otherwise.
    """
    course = Course(record)
    if sight.report is not None:
        _follow(course, sight.report)
    elif sight.presence is AttemptPresence.LOST:
        _lose(course, now, max_restarts)
    if course.record.stage is not JobStage.ACTIVE:
        return course
    if _has_waited_too_long(course.record, now):
        course.stop(now, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
    if course.record.status is JobStatus.STOPPING and sight.presence is AttemptPresence.ABSENT:
        course.end(course.record.ends_as, now)
    return course


def admit(record: TrainingJobRecord, now: float) -> Course:
    course = Course(record)
    if record.secondary is SecondaryStatus.STARTING:
        # The job was created with this status; only the message changes.
        *past, last = record.transitions
        last = msgspec.structs.replace(last, message="Preparing the instances for training")
        course.note(transitions=(*past, last), modified_at=max(now, record.modified_at))
    else:
        course.move(SecondaryStatus.STARTING, now)
    course.note(
        stage=JobStage.ACTIVE,
        attempt=record.attempt + 1,
        phases=0,
        gives_up_at=record.wait_ends_at,
    )
    return course


def give_up(record: TrainingJobRecord, now: float) -> Course:
    course = Course(record)
    if record.wait_ends_at is not None and record.wait_ends_at <= now:
        course.stop(now, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
    else:
        message = "Training job was pending for longer than MaxPendingTimeInSeconds provided"
        course.stop(now, SecondaryStatus.STOPPED, message)
    course.end(course.record.ends_as, now)
    return course


def _has_waited_too_long(record: TrainingJobRecord, now: float) -> bool:
    """Returns False while uploading: the code has ended, and its results are on their way."""
    over = record.gives_up_at is not None and record.gives_up_at <= now
    return over and record.secondary is not SecondaryStatus.UPLOADING


def _follow(course: Course, report: JobReport) -> None:
    report = _without_nonsense(report)
    for change in report.phases[course.record.phases :]:
        _enter(course, report, change)
    if report.outcome is not None:
        _conclude(course, report, report.outcome)
    elif course.moves or _are_news(course.record, report):
        course.note(metrics=report.metrics or course.record.metrics)
    else:
        course.record = course.stored  # mere presence is not worth a write


def _enter(course: Course, report: JobReport, change: PhaseChange) -> None:
    status = SecondaryStatus(change.phase.value)
    if change.phase is JobPhase.UPLOADING and _ran_out(course.record, report, change):
        course.stop(change.at, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
    stopping = course.record.status is JobStatus.STOPPING
    if course.record.secondary is not status and (
        not stopping or change.phase is JobPhase.UPLOADING
    ):
        course.move(status, change.at)
    if change.phase is JobPhase.TRAINING and course.record.started_at is None:
        course.note(started_at=max(change.at, course.record.created_at))
    course.note(phases=course.record.phases + 1)


def _ran_out(record: TrainingJobRecord, report: JobReport, uploading: PhaseChange) -> bool:
    """Compare only the agent's times: its clock does not jump."""
    began = [one.at for one in report.phases if one.phase is JobPhase.TRAINING]
    left = record.max_runtime_seconds - record.run_seconds
    return bool(began) and uploading.at - began[0] >= left


def _without_nonsense(report: JobReport) -> JobReport:
    """Drop NaN and infinity, which JSON and CloudWatch cannot hold."""
    told = tuple(one for one in report.metrics if math.isfinite(one.value))
    return msgspec.structs.replace(report, metrics=told) if told != report.metrics else report


def _are_news(record: TrainingJobRecord, report: JobReport) -> bool:
    known = max((one.at for one in record.metrics), default=0.0)
    newest = max((one.at for one in report.metrics), default=0.0)
    return newest - known >= METRICS_SECONDS


def _conclude(course: Course, report: JobReport, outcome: JobOutcome) -> None:
    at = course.record.transitions[-1].started_at if report.ended_at is None else report.ended_at
    record = course.record
    course.note(
        run_seconds=record.run_seconds + max(0.0, report.running_seconds),
        metrics=report.metrics or record.metrics,
        artifacts=report.artifacts,
    )
    stopping = record.status is JobStatus.STOPPING
    match outcome:
        case JobOutcome.COMPLETED:
            course.end(SecondaryStatus.COMPLETED, at)
        case JobOutcome.FAILED:
            course.end(SecondaryStatus.FAILED, at, report.failure_reason or "AlgorithmError: ")
        case JobOutcome.MAX_RUNTIME:
            course.end(SecondaryStatus.MAX_RUNTIME_EXCEEDED, at)
        case JobOutcome.LOST if not stopping and _may_retry(record, 0):
            _again(course, at, SecondaryStatus.RESTARTING, retries=record.retries + 1)
        case JobOutcome.LOST:
            course.end(SecondaryStatus.FAILED, at, report.failure_reason or _AGENT_LOST)
        case JobOutcome.INTERRUPTED if not stopping:
            _again(course, at, _interrupted(record))
        case _:
            course.stop(at, SecondaryStatus.STOPPED)
            course.end(course.record.ends_as, at)


def _lose(course: Course, at: float, max_restarts: int) -> None:
    record = course.record
    course.note(run_seconds=record.run_seconds + _lost_seconds(record, at))
    if record.status is JobStatus.STOPPING:
        course.end(record.ends_as, at)
    elif record.spot:
        _again(course, at, SecondaryStatus.INTERRUPTED)
    elif _may_retry(record, max_restarts):
        _again(course, at, SecondaryStatus.RESTARTING, retries=record.retries + 1)
    else:
        course.end(SecondaryStatus.FAILED, at, _AGENT_LOST)


def _lost_seconds(record: TrainingJobRecord, at: float) -> float:
    """Returns how long the code of a lost attempt ran, as far as known."""
    for one in reversed(record.transitions):
        if one.status is SecondaryStatus.STARTING:
            break
        if one.status is SecondaryStatus.TRAINING:
            ran = (at if one.ended_at is None else one.ended_at) - one.started_at
            left = record.max_runtime_seconds - record.run_seconds
            return min(max(0.0, ran), left)
    return 0.0


def _may_retry(record: TrainingJobRecord, otherwise: int) -> bool:
    limit = otherwise if record.max_retries is None else record.max_retries
    return record.retries < limit


def _interrupted(record: TrainingJobRecord) -> SecondaryStatus:
    return SecondaryStatus.INTERRUPTED if record.spot else SecondaryStatus.RESTARTING


def _again(course: Course, at: float, status: SecondaryStatus, retries: int | None = None) -> None:
    """Wait for another attempt, unless no run time is left."""
    course.move(status, at)
    if course.record.run_seconds >= course.record.max_runtime_seconds:
        course.stop(at, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
        course.end(SecondaryStatus.MAX_RUNTIME_EXCEEDED, at)
        return
    course.note(
        stage=JobStage.WAITING,
        phases=0,
        retries=course.record.retries if retries is None else retries,
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
            _channel(one, algorithm["TrainingInputMode"])
            for one in definition.get("InputDataConfig", ())
        ),
        output_uri=output["S3OutputPath"],
        compress_output=output.get("CompressionType", "GZIP") == "GZIP",
        checkpoint=_checkpoint(definition.get("CheckpointConfig")),
        metric_definitions=tuple(
            MetricDefinition(name=one["Name"], regex=one["Regex"])
            for one in algorithm.get("MetricDefinitions", ())
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
