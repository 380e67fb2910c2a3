"""DescribeTrainingJob, ListTrainingJobs, UpdateTrainingJob, StopTrainingJob, DeleteTrainingJob."""

import contextlib
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.listing import read_page
from sagehen.api.refusals import refused
from sagehen.api.training.description import describe, summarize
from sagehen.api.training.stopping import stop_training_job_row
from sagehen.domain.training import TrainingJobRecord
from sagehen.home import Home
from sagehen.store import tags, training_jobs
from sagehen.wire.faults import AwsError

__all__ = [
    "delete_training_job",
    "describe_training_job",
    "list_training_jobs",
    "stop_training_job",
    "update_training_job",
]

NOT_FOUND = "Requested resource not found."
_UPDATABLE = ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig")
_OF_NOBODY = ("WarmPoolStatusEquals", "TrainingPlanArnEquals")
"""No job of ours has what these ask for."""


def describe_training_job(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """A job as it was asked for, and where it stands."""
    with call.database.read() as connection:
        record = training_jobs.get(connection, params["TrainingJobName"])
    if record is None:
        raise refused(NOT_FOUND)
    return describe(record)


def list_training_jobs(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of jobs; unlike other lists, the oldest first where no order is given.

    A page has as many as asked for, also with StatusEquals, where SageMaker's may have fewer.
    """
    if any(params.get(one) for one in _OF_NOBODY):
        return {"TrainingJobSummaries": []}
    return read_page(
        call, params, training_jobs.list_page, "TrainingJobSummaries", summarize, "Ascending"
    )


def update_training_job(call: Call, params: dict[str, Any]) -> dict[str, Any]:
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


def stop_training_job(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Ask for a job to end; it is `Stopping` until its code has, and its outputs are uploaded."""
    call.writes.run(lambda connection: _stop(call, connection, params["TrainingJobName"]))
    return {}


def delete_training_job(call: Call, params: dict[str, Any]) -> dict[str, Any]:
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


def _put_log_aside(call: Call, record: TrainingJobRecord) -> None:
    folder = Home(call.settings.home).job_log(record.name)
    # No job's name has a dot. It may have no log, or none any more.
    with contextlib.suppress(OSError):
        folder.rename(folder.with_name(f"{record.name}.{record.job_id}"))


def _stop(call: Call, connection: Connection, name: str) -> None:
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
