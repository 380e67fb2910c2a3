"""Describe, list and stop transform jobs."""

from typing import Any

from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import read_page
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.description import describe, summarize
from sagehen.services.sagemaker.transform.events import transform_event
from sagehen.services.sagemaker.transform.status import request_stop
from sagehen.wire.errors import AwsError

__all__ = ["describe_transform_job", "list_transform_jobs", "stop_transform_job"]


def describe_transform_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    name = params["TransformJobName"]
    with call.database.read() as connection:
        record = transform_jobs.get(connection, name)
    if record is None:
        raise _not_found(name)
    return describe(record)


def list_transform_jobs(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    return read_page(call, params, transform_jobs.list_page, "TransformJobSummaries", summarize)


def stop_transform_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Asks for a job to end; it is `Stopping` until nothing more is uploaded."""
    call.writes.run(lambda connection: _stop(call, connection, params["TransformJobName"]))
    return {}


def _stop(call: RequestContext, connection: Connection, name: str) -> None:
    record = transform_jobs.get_for_update(connection, name)
    if record is None:
        raise _not_found(name)
    if record.status.is_final:
        raise refused(
            f"The request was rejected because the transform job is in status {record.status}."
        )
    if record.status is JobStatus.STOPPING:
        return
    now = call.clock.now()
    after = request_stop(record, now)
    transform_jobs.update(connection, after)
    labels = tags.get(connection, record.arn)
    put_event(connection, transform_event(after, labels, call.arns, now))


def _not_found(name: str) -> AwsError:
    # The model says ResourceNotFound; clients such as Airflow rely on what is answered.
    return refused(f"Could not find requested job with name: {name}")
