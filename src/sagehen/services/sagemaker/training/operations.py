"""Describe, list, update, stop and delete training jobs."""

import contextlib
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.home import Home
from sagehen.frame import tags
from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import read_page
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.description import describe, summarize
from sagehen.services.sagemaker.training.events import training_event
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.services.sagemaker.training.status import JobUpdate
from sagehen.wire.errors import AwsError

__all__ = [
    "delete_training_job",
    "describe_training_job",
    "list_training_jobs",
    "stop_training_job",
    "stop_training_job_row",
    "update_training_job",
]


def stop_training_job_row(
    connection: Connection, record: TrainingJobRecord, arns: ArnMaker, now: float
) -> None:
    """Asks for a job to end, in the transaction that read and locked `record`; ignored if it is
    ending."""
    if record.status is not JobStatus.IN_PROGRESS:
        return
    update = JobUpdate(record)
    update.stop(now, SecondaryStatus.STOPPED)
    if record.stage is JobStage.WAITING:
        # Nothing runs: let the reconciler end it at once.
        update.note(gives_up_at=0.0)
    training_jobs.update(connection, update.record)
    labels = tags.get(connection, record.arn)
    for state in update.moves:
        put_event(connection, training_event(state, labels, arns, now))


NOT_FOUND = "Requested resource not found."
_UPDATABLE = ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig")
_MATCHING_NOTHING = ("WarmPoolStatusEquals", "TrainingPlanArnEquals")
"""Filters that match no job here."""


def describe_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        record = training_jobs.get(connection, params["TrainingJobName"])
    if record is None:
        raise refused(NOT_FOUND)
    return describe(record)


def list_training_jobs(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Sorts oldest first by default, unlike other lists.

    With StatusEquals pages are full; SageMaker's may have fewer jobs.
    """
    if any(params.get(member) for member in _MATCHING_NOTHING):
        return {"TrainingJobSummaries": []}
    return read_page(
        call, params, training_jobs.list_page, "TrainingJobSummaries", summarize, "Ascending"
    )


def update_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Change members of a running job that are only described."""

    def work(connection: Connection) -> str:
        record = _going_on(connection, params["TrainingJobName"])
        changed = {member: params[member] for member in _UPDATABLE if member in params}
        if "ResourceConfig" in params:
            resources = record.definition["ResourceConfig"]
            changed["ResourceConfig"] = {**resources, **params["ResourceConfig"]}
        definition = {**record.definition, **changed}
        now = max(call.clock.now(), record.modified_at)
        after = msgspec.structs.replace(record, definition=definition, modified_at=now)
        training_jobs.update(connection, after)
        return record.arn

    return {"TrainingJobArn": call.writes.run(work)}


def stop_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Asks for a job to end; it is `Stopping` until its code has ended and its outputs are
    uploaded."""
    call.writes.run(lambda connection: _stop(call, connection, params["TrainingJobName"]))
    return {}


def delete_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes an ended job but not its outputs; its log is renamed, for the name may be used
    again."""

    def work(connection: Connection) -> None:
        record = training_jobs.get_for_update(connection, params["TrainingJobName"])
        if record is None:
            raise AwsError("ResourceNotFound", NOT_FOUND)
        if not record.status.is_final:
            raise AwsError(
                "ResourceInUse",
                f"The training job {record.arn} is in status {record.status}. Only a job that is "
                "Completed, Failed or Stopped can be deleted: stop it first.",
            )
        training_jobs.delete(connection, record.name)
        tags.drop(connection, record.arn)
        # In the transaction: after it another job may have the name and this folder.
        _put_log_aside(call, record)

    call.writes.run(work)
    return {}


def _put_log_aside(call: RequestContext, record: TrainingJobRecord) -> None:
    folder = Home(call.settings.home).job_log(record.name)
    # Job names have no dots. The log may be missing.
    with contextlib.suppress(OSError):
        folder.rename(folder.with_name(f"{record.name}.{record.job_id}"))


def _stop(call: RequestContext, connection: Connection, name: str) -> None:
    record = _going_on(connection, name)
    stop_training_job_row(connection, record, call.arns, call.clock.now())


def _going_on(connection: Connection, name: str) -> TrainingJobRecord:
    record = training_jobs.get_for_update(connection, name)
    if record is None:
        raise refused(NOT_FOUND)
    if record.status.is_final:
        raise refused(
            f"The request was rejected because the training job is in status {record.status}."
        )
    return record
