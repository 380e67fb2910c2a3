"""CreateTransformJob."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import AlreadyExists, Invalid
from sagehen.frame import tags as stored_tags
from sagehen.frame.container_specs import ContainerSpec
from sagehen.frame.context import RequestContext
from sagehen.frame.gpus import instance_fraction
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.sagemaker.errors import over_limit, refused
from sagehen.services.sagemaker.hosting.containers import container_specs, containers_of
from sagehen.services.sagemaker.hosting.definitions import MODELS
from sagehen.services.sagemaker.hosting.model_data import model_data_version
from sagehen.services.sagemaker.hosting.records import ModelRecord
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.tags import check_tags
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.events import transform_event
from sagehen.services.sagemaker.transform.job_records import OPTION_PREFIX, TransformJobRecord
from sagehen.services.sagemaker.transform.validation import check_model, check_transform_job
from sagehen.wire.errors import AwsError

__all__ = ["create_transform_job", "job_environment"]

DEFAULT_TIMEOUT_SECONDS = 600
"""of an invocation: SageMaker's default of InvocationsTimeoutInSeconds"""
SERVER_MARGIN_SECONDS = 1


def create_transform_job(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    given_tags = check_tags(params.get("Tags", []))
    check_transform_job(params, call.settings, call.objects)
    versions = _look_up_versions(call, params["ModelName"])
    record = call.writes.run(
        lambda connection: _create_row(call, connection, params, given_tags, versions)
    )
    return {"TransformJobArn": record.arn}


def job_environment(params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables that a job adds to those of its model.

    SageMaker sets the names of batch transform only where the request has the value. The model
    server's time-out follows the client's, which must give up first.
    """
    own = {
        name: value
        for name, value in params.get("Environment", {}).items()
        if not name.startswith(OPTION_PREFIX)
    }
    client = params.get("ModelClientConfig", {})
    seconds = client.get("InvocationsTimeoutInSeconds", DEFAULT_TIMEOUT_SECONDS)
    strategy = params.get("BatchStrategy")
    fixed = {
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": params.get("MaxPayloadInMB"),
        "SAGEMAKER_BATCH_STRATEGY": strategy and _STRATEGIES[strategy],
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": params.get("MaxConcurrentTransforms"),
    }
    return {
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": str(seconds + SERVER_MARGIN_SECONDS),
        **own,
        **{name: str(value) for name, value in fixed.items() if value is not None},
    }


_STRATEGIES = {"MultiRecord": "MULTI_RECORD", "SingleRecord": "SINGLE_RECORD"}


def _look_up_versions(call: RequestContext, model_name: str) -> dict[str, str]:
    """Returns the ETags of the model's data, so that instances that start later get the same."""
    with call.database.read() as connection:
        model = MODELS.get(call, connection, model_name)
    versions = (
        model_data_version(call, container) for container in containers_of(model.definition)
    )
    return dict(filter(None, versions))


def _create_row(
    call: RequestContext,
    connection: Connection,
    params: dict[str, Any],
    tags: dict[str, str],
    versions: Mapping[str, str],
) -> TransformJobRecord:
    """Raises AwsError: ResourceInUse: the name is taken, in any case; ResourceLimitExceeded."""
    model = MODELS.get(call, connection, params["ModelName"])
    check_model(model, params)
    _check_waiting(connection, call.settings.max_waiting_transform_jobs)
    now = call.clock.now()
    name = params["TransformJobName"]
    record = TransformJobRecord(
        name=name,
        arn=call.arns.sagemaker("transform-job", name),
        created_at=now,
        modified_at=now,
        definition={key: value for key, value in params.items() if key != "Tags"},
        job_id=uuid.uuid4().hex,
        containers=_containers(model, params, versions),
    )
    try:
        transform_jobs.insert(connection, record)
    except AlreadyExists as error:
        raise _in_use(record.arn) from error
    stored_tags.put(connection, record.arn, tags)
    put_event(connection, transform_event(record, tags, call.arns, now))
    return record


def _containers(
    model: ModelRecord, params: dict[str, Any], versions: Mapping[str, str]
) -> tuple[ContainerSpec, ...]:
    of_job = job_environment(params)
    specs = tuple(
        msgspec.structs.replace(spec, environment=_merged(spec.environment, of_job))
        for spec in container_specs(model.definition, versions)
    )
    try:
        instance_fraction([spec.environment for spec in specs])
    except Invalid as error:
        raise refused(str(error)) from error
    return specs


def _merged(of_model: Mapping[str, str], of_job: Mapping[str, str]) -> dict[str, str]:
    """The job wins, except over a time-out that the model's author chose."""
    timeouts = ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS")
    chosen = {name: of_model[name] for name in timeouts if name in of_model}
    return {**of_model, **of_job, **chosen}


def _check_waiting(connection: Connection, limit: int) -> None:
    if transform_jobs.count_up_to(connection, limit, JobStage.WAITING) >= limit:
        raise over_limit(
            f"{limit} transform jobs wait already; more are refused. (The limit is Sagehen's "
            "setting max_waiting_transform_jobs.)"
        )


def _in_use(arn: str) -> AwsError:
    return AwsError(
        "ResourceInUse",
        "Transform job names must be unique within an AWS account and region, and a transform job "
        f"with this name already exists ({arn})",
    )
