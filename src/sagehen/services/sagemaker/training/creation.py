"""CreateTrainingJob."""

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import AlreadyExists
from sagehen.base.settings import Settings
from sagehen.frame import tags as stored_tags
from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.errors import over_limit
from sagehen.services.sagemaker.image_versions import log_versions
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.tags import check_tags
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.events import training_event
from sagehen.services.sagemaker.training.records import (
    SecondaryStatus,
    TrainingJobRecord,
    Transition,
)
from sagehen.services.sagemaker.training.validation import check_training_job
from sagehen.wire.errors import AwsError

__all__ = ["create_training_job", "create_training_job_row"]

DEFAULT_RUNTIME_SECONDS = 86_400
"""SageMaker's default of MaxRuntimeInSeconds."""


def create_training_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    given_tags = check_tags(params.get("Tags", []))
    check_training_job(params, call.settings, call.objects)
    record = call.writes.run(
        lambda connection: create_training_job_row(
            connection,
            params,
            given_tags,
            settings=call.settings,
            arns=call.arns,
            now=call.clock.now(),
        )
    )
    images = [params["AlgorithmSpecification"]["TrainingImage"]]
    log_versions("training job", record.name, images, call.settings)
    return {"TrainingJobArn": record.arn}


def create_training_job_row(
    connection: Connection,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    *,
    settings: Settings,
    arns: ArnMaker,
    now: float,
) -> TrainingJobRecord:
    """Insert a training job with its tags and first event, in the caller's transaction.

    Args:
        params: checked by `check_training_job`.
        now: seconds since the epoch.

    Raises:
        AwsError: ResourceInUse: the name is taken, in any case; ResourceLimitExceeded: too many
            jobs wait.
    """
    running = settings.running_jobs
    before = training_jobs.count_up_to(connection, running, JobStage.WAITING, JobStage.ACTIVE)
    record = _record(params, arns, now, waits=before >= running)
    if before >= running:
        _check_waiting(connection, settings.max_waiting_jobs)
    try:
        training_jobs.insert(connection, record)
    except AlreadyExists as error:
        raise _in_use(record.arn) from error
    stored_tags.put(connection, record.arn, tags)
    put_event(connection, training_event(record, tags, arns, now))
    return record


def _record(
    params: Mapping[str, Any], arns: ArnMaker, now: float, waits: bool
) -> TrainingJobRecord:
    definition = {key: value for key, value in params.items() if key != "Tags"}
    stopping = {
        "MaxRuntimeInSeconds": DEFAULT_RUNTIME_SECONDS,
        **definition.get("StoppingCondition", {}),
    }
    definition["StoppingCondition"] = stopping
    wait_limits = (stopping.get("MaxWaitTimeInSeconds"), stopping.get("MaxPendingTimeInSeconds"))
    first = Transition(
        status=SecondaryStatus.PENDING if waits else SecondaryStatus.STARTING,
        started_at=now,
        message="Waiting for other training jobs to end" if waits else "Starting the training job",
    )
    return TrainingJobRecord(
        name=params["TrainingJobName"],
        arn=arns.sagemaker("training-job", params["TrainingJobName"]),
        created_at=now,
        modified_at=now,
        definition=definition,
        job_id=uuid.uuid4().hex,
        transitions=(first,),
        gives_up_at=min(
            (now + seconds for seconds in wait_limits if seconds is not None), default=None
        ),
    )


def _check_waiting(connection: Connection, limit: int) -> None:
    if training_jobs.count_up_to(connection, limit, JobStage.WAITING) >= limit:
        raise over_limit(
            f"{limit} training jobs wait already; more are refused. (The limit is Sagehen's "
            "setting max_waiting_jobs.)"
        )


def _in_use(arn: str) -> AwsError:
    return AwsError(
        "ResourceInUse",
        "Training job names must be unique within an AWS account and region, and a training job "
        f"with this name already exists ({arn})",
    )
