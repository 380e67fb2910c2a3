"""DescribeTrainingJob, ListTrainingJobs, UpdateTrainingJob, StopTrainingJob, DeleteTrainingJob.

The one way in which a training job is asked to end.
"""

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
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.description import describe, summarize
from sagehen.services.sagemaker.training.events import training_event
from sagehen.services.sagemaker.training.records import (
    JobStage,
    JobStatus,
    SecondaryStatus,
    TrainingJobRecord,
)
from sagehen.services.sagemaker.training.status import Course
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
    """Ask for a job to end, in the caller's transaction, in which `record` was read, locked.

    One that has ended, or was asked before, is left as it is.
    """
    if record.status is not JobStatus.IN_PROGRESS:
        return
    course = Course(record)
    course.stop(now, SecondaryStatus.STOPPED)
    if record.stage is JobStage.WAITING:
        # Nothing runs that would have to end first: it is overdue.
        course.note(gives_up_at=0.0)
    training_jobs.update(connection, course.record)
    labels = tags.get(connection, record.arn)
    for state in course.moves:
        put_event(connection, training_event(state, labels, arns, now))


NOT_FOUND = "Requested resource not found."
_UPDATABLE = ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig")
_OF_NOBODY = ("WarmPoolStatusEquals", "TrainingPlanArnEquals")
"""No job of ours has what these ask for."""


def describe_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """A job as it was asked for, and where it stands."""
    with call.database.read() as connection:
        record = training_jobs.get(connection, params["TrainingJobName"])
    if record is None:
        raise refused(NOT_FOUND)
    return describe(record)


def list_training_jobs(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """One page of jobs; unlike other lists, the oldest first where no order is given.

    A page has as many as asked for, also with StatusEquals, where SageMaker's may have fewer.
    """
    if any(params.get(one) for one in _OF_NOBODY):
        return {"TrainingJobSummaries": []}
    return read_page(
        call, params, training_jobs.list_page, "TrainingJobSummaries", summarize, "Ascending"
    )


def update_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Change what is only told again of a job that goes on."""

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
    """Ask for a job to end; it is `Stopping` until its code has, and its outputs are uploaded."""
    call.writes.run(lambda connection: _stop(call, connection, params["TrainingJobName"]))
    return {}


def delete_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Forget a job that has ended; its name is free again. What it wrote stays.

    Its log stays too, by another name: the next job of its name begins its own.
    """

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
        # Before anybody else can have the name: from then on that folder is his.
        _put_log_aside(call, record)

    call.writes.run(work)
    return {}


def _put_log_aside(call: RequestContext, record: TrainingJobRecord) -> None:
    folder = Home(call.settings.home).job_log(record.name)
    # No job's name has a dot. It may have no log, or none any more.
    with contextlib.suppress(OSError):
        folder.rename(folder.with_name(f"{record.name}.{record.job_id}"))


def _stop(call: RequestContext, connection: Connection, name: str) -> None:
    record = _going_on(connection, name)
    stop_training_job_row(connection, record, call.arns, call.clock.now())


def _going_on(connection: Connection, name: str) -> TrainingJobRecord:
    """A job that has not ended; raises AwsError where there is none."""
    record = training_jobs.get_for_update(connection, name)
    if record is None:
        raise refused(NOT_FOUND)
    if record.status.is_final:
        raise refused(
            f"The request was rejected because the training job is in status {record.status}."
        )
    return record
