"""AsyncInferenceConfig: its checks, the plan it becomes, and the test notifications to its
topics."""

import logging
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.base.settings import Settings
from sagehen.frame.context import RequestContext
from sagehen.frame.routes import AsyncPlan
from sagehen.frame.s3_locations import parse_location
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.s3.storage.errors import BucketExists
from sagehen.services.s3.storage.records import is_bucket_name
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.hosting.containers import containers_of
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs
from sagehen.services.sagemaker.hosting.records import ModelRecord
from sagehen.wire.errors import AwsError

__all__ = [
    "check_async_config",
    "check_async_models",
    "make_default_bucket",
    "plan_async",
    "try_topics",
]

log = logging.getLogger(__name__)

_PATHS = ("S3OutputPath", "S3FailurePath")


def check_async_config(params: dict[str, Any]) -> None:
    """Checks AsyncInferenceConfig, all but its models; raises AwsError. `check_shadow` refuses
    shadow variants."""
    asynchronous = params.get("AsyncInferenceConfig")
    if asynchronous is None:
        return
    output = asynchronous["OutputConfig"]
    for member in _PATHS:
        if member in output:
            _check_path(member, output[member])
    # EnableCapture defaults to true.
    if params.get("DataCaptureConfig", {"EnableCapture": False}).get("EnableCapture", True):
        raise _not_with_async("data capture (DataCaptureConfig with EnableCapture)")
    for variant in params["ProductionVariants"]:
        if "ServerlessConfig" in variant:
            raise _not_with_async("serverless inference (ServerlessConfig)")


def check_async_models(definition: dict[str, Any], models: Iterable[ModelRecord]) -> None:
    if "AsyncInferenceConfig" not in definition:
        return
    for model in models:
        containers = containers_of(model.definition)
        if len(containers) > 1:
            raise _not_with_async(f"models of several containers (model {model.name})")
        if any(container.get("Mode") == "MultiModel" for container in containers):
            raise _not_with_async(f"multi-model endpoints (model {model.name})")


def plan_async(
    definition: dict[str, Any], settings: Settings, endpoint_name: str
) -> AsyncPlan | None:
    asynchronous = definition.get("AsyncInferenceConfig")
    if asynchronous is None:
        return None
    output = asynchronous["OutputConfig"]
    topics = output.get("NotificationConfig", {})
    return AsyncPlan(
        output_path=output.get("S3OutputPath") or _default_path(settings, endpoint_name),
        failure_path=output.get("S3FailurePath") or None,
        success_topic=topics.get("SuccessTopic") or None,
        error_topic=topics.get("ErrorTopic") or None,
        include_response_in=tuple(dict.fromkeys(topics.get("IncludeInferenceResponseIn", ()))),
        max_concurrency=asynchronous.get("ClientConfig", {}).get(
            "MaxConcurrentInvocationsPerInstance"
        ),
    )


def make_default_bucket(call: RequestContext, config_name: str) -> None:
    """Creates the default output bucket if the config names no output path.

    Call it before the transaction that deploys: the object store may be far away.
    """
    with call.database.read() as connection:
        config = endpoint_configs.get(connection, config_name)
    asynchronous = config and config.definition.get("AsyncInferenceConfig")
    if asynchronous and not asynchronous["OutputConfig"].get("S3OutputPath"):
        with suppress(BucketExists):
            call.objects.create_bucket(_default_bucket(call.settings))


def _default_bucket(settings: Settings) -> str:
    """Returns the SageMaker SDK's bucket."""
    return f"sagemaker-{settings.region}-{settings.account_id}"


def _default_path(settings: Settings, endpoint_name: str) -> str:
    """Returns the SageMaker SDK's path."""
    return f"s3://{_default_bucket(settings)}/async-endpoint-outputs/{endpoint_name}"


def _check_path(member: str, path: str) -> None:
    try:
        bucket = parse_location(path).bucket
    except Invalid:
        bucket = ""
    ends_early = path.startswith("https:") and ("?" in path or "#" in path)
    if not is_bucket_name(bucket) or ends_early or not path.isprintable():
        raise refused(
            f"{member} {path!r} is not an address in S3. Give s3://bucket/prefix, or "
            "https://bucket.s3.region.amazonaws.com/prefix."
        )


def _not_with_async(feature: str) -> AwsError:
    return refused(f"AsyncInferenceConfig is not supported with {feature}.")


_MESSAGE = '{"eventVersion":"1.0","eventSource":"aws:sagemaker","eventName":"TestNotification"}'


def try_topics(call: RequestContext, connection: Connection, plan: AsyncPlan | None) -> str | None:
    """Publish a TestNotification to each topic of `plan`; returns why the deployment must fail.

    If `topics_required` is off, missing topics are only logged.
    """
    arns = (plan.success_topic, plan.error_topic) if plan else ()
    missing = [
        arn
        for arn in dict.fromkeys(filter(None, arns))
        if not topics.publish(connection, _notice(arn, call.clock.now()))
    ]
    if not missing:
        return None
    prefix = call.arns.sns("")
    some_foreign = not all(arn.startswith(prefix) for arn in missing)
    reason = (
        f"The TestNotification could not be published, for there is no topic {', '.join(missing)}. "
        "Create it with CreateTopic, then try again."
    ) + (f" The topics of this server are {prefix}NAME." if some_foreign else "")
    if call.settings.topics_required:
        return reason
    log.warning("%s", reason, extra={"action": "try_topics", "id": call.request_id})
    return None


def _notice(topic_arn: str, now: float) -> Notice:
    return Notice(
        message_id=str(uuid.uuid4()), topic_arn=topic_arn, message=_MESSAGE, published_at=now
    )
