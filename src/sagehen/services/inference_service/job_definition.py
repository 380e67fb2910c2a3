"""Builds a request's CreateTrainingJob parameters."""

import re
import secrets
import string
from datetime import UTC, datetime
from typing import Any

from sagehen.base.settings.inference_service import (
    InferenceServiceSettings,
    TypeSettings,
    filled,
)
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service.request_body import JobBody

__all__ = ["INPUT_CHANNEL", "inline_key", "job_name", "make_definition", "make_tags", "new_suffix"]

INPUT_CHANNEL = "input"
FIXED_CHANNEL = "training-data"
LONGEST_NAME = 63
ROLE = "SagehenInferenceService"
_SUFFIX_ALPHABET = string.ascii_lowercase + string.digits
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]")
_NOT_IN_TAGS = re.compile(r"[^\w .:/=+\-@]")


def new_suffix() -> str:
    """Returns one of two billion suffixes, to distinguish jobs of the same second."""
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(6))


def job_name(kind: str, now: float, suffix: str) -> str:
    """Returns the name `{type}-job-{YYYY-mm-dd-HH-MM-SS}-{suffix}`.

    A TrainingJobName has at most 63 letters, digits and hyphens: other characters become hyphens,
    and a long type is cut.
    """
    tail = f"-job-{datetime.fromtimestamp(now, UTC):%Y-%m-%d-%H-%M-%S}-{suffix}"
    head = _NOT_IN_NAMES.sub("-", kind).lstrip("-")[: LONGEST_NAME - len(tail)].rstrip("-")
    return (head or "type") + tail


def inline_key(name: str, file_name: str) -> str:
    return f"input/{name}/{file_name}"


def make_definition(
    job: JobBody, settings: InferenceServiceSettings, name: str, arns: ArnMaker
) -> dict[str, Any]:
    own = settings.types.get(job.type) or TypeSettings()
    image = own.image or filled(
        settings.image, type=job.type, account_id=arns.account_id, region=arns.region
    )
    definition: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": settings.role_arn or arns.role(ROLE),
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": settings.result_root},
        "ResourceConfig": {
            "InstanceType": job.instance_type,
            "InstanceCount": job.instance_count,
            "VolumeSizeInGB": settings.volume_gb,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": settings.max_runtime_seconds},
    }
    if parameters := {**job.parameters, **own.hyperparameters}:
        definition["HyperParameters"] = parameters
    if channels := _channels(job, settings, name):
        definition["InputDataConfig"] = channels
    if job.spot:
        definition["EnableManagedSpotTraining"] = True
        definition["StoppingCondition"]["MaxWaitTimeInSeconds"] = settings.wait_seconds
    if settings.checkpoints:
        uri = f"s3://{settings.s3_bucket}/checkpoints/{name}"
        definition["CheckpointConfig"] = {"S3Uri": uri}
    return definition


def make_tags(stage: str, kind: str) -> dict[str, str]:
    return {
        "sagehen:inference-service": stage,
        "sagehen:inference-type": _NOT_IN_TAGS.sub("-", kind)[:256],
    }


def _channels(job: JobBody, settings: InferenceServiceSettings, name: str) -> list[dict[str, Any]]:
    channels = []
    if settings.data_uri is not None:
        channels.append(_channel(FIXED_CHANNEL, settings.data_uri))
    if job.inline is not None:
        folder = inline_key(name, "")
        channels.append(_channel(INPUT_CHANNEL, f"s3://{settings.s3_bucket}/{folder}"))
    elif job.input_uri is not None:
        channels.append(_channel(INPUT_CHANNEL, job.input_uri))
    return channels


def _channel(name: str, uri: str) -> dict[str, Any]:
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}
