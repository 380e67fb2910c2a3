"""The answers of DescribeTransformJob and ListTransformJobs."""

from typing import Any

from sagehen.frame.named_records import as_time
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord

__all__ = ["describe", "summarize"]

_COPIED_MEMBERS = (
    "ModelName",
    "MaxConcurrentTransforms",
    "ModelClientConfig",
    "MaxPayloadInMB",
    "BatchStrategy",
    "Environment",
    "DataCaptureConfig",
    "TransformResources",
    "ExperimentConfig",
)


def describe(record: TransformJobRecord) -> dict[str, Any]:
    """Returns DescribeTransformJob's output with SageMaker's defaults, without unset members."""
    definition = record.definition
    described = {
        **summarize(record),
        **{member: definition[member] for member in _COPIED_MEMBERS if member in definition},
        "TransformInput": {
            "CompressionType": "None",
            "SplitType": "None",
            **definition["TransformInput"],
        },
        "TransformOutput": {
            "AssembleWith": "None",
            "KmsKeyId": "",
            **definition["TransformOutput"],
        },
        "DataProcessing": {
            "InputFilter": "$",
            "OutputFilter": "$",
            "JoinSource": "None",
            **definition.get("DataProcessing", {}),
        },
        **_times(TransformStartTime=record.started_at),
    }
    del described["LastModifiedTime"]  # only ListTransformJobs has it
    return described


def summarize(record: TransformJobRecord) -> dict[str, Any]:
    summary = {
        "TransformJobName": record.name,
        "TransformJobArn": record.arn,
        "TransformJobStatus": record.status.value,
        "CreationTime": as_time(record.created_at),
        "LastModifiedTime": as_time(record.modified_at),
        **_times(TransformEndTime=record.ended_at),
    }
    if record.failure_reason is not None:
        summary["FailureReason"] = record.failure_reason
    return summary


def _times(**seconds: float | None) -> dict[str, Any]:
    return {member: as_time(at) for member, at in seconds.items() if at is not None}
