"""The answers of DescribeTrainingJob and ListTrainingJobs."""

from typing import Any

from sagehen.frame.job_specs import JobMetric
from sagehen.frame.named_records import as_time
from sagehen.services.sagemaker.training.records import TrainingJobRecord, Transition

__all__ = ["describe", "summarize"]

_AS_GIVEN = (
    "HyperParameters",
    "RoleArn",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "TensorBoardOutputConfig",
    "ExperimentConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "Environment",
    "RetryStrategy",
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "MlflowConfig",
)


def describe(record: TrainingJobRecord) -> dict[str, Any]:
    """Returns DescribeTrainingJob's output, with SageMaker's defaults and without unset members."""
    given = record.definition
    described: dict[str, Any] = {
        **summarize(record),
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **{member: given[member] for member in _AS_GIVEN if member in given},
        "AlgorithmSpecification": {
            "EnableSageMakerMetricsTimeSeries": False,
            **given["AlgorithmSpecification"],
        },
        "InputDataConfig": [_channel(one) for one in given.get("InputDataConfig", ())] or None,
        # The SageMaker SDK's attach() reads KmsKeyId even if it was not given.
        "OutputDataConfig": {
            "KmsKeyId": "",
            "CompressionType": "GZIP",
            **given["OutputDataConfig"],
        },
        "ModelArtifacts": {"S3ModelArtifacts": _model_address(record)},
        "FailureReason": record.failure_reason,
        "TrainingStartTime": _time(record.started_at),
        "SecondaryStatusTransitions": [_transition(one) for one in record.transitions],
        "FinalMetricDataList": [_metric(one) for one in record.metrics] or None,
        **_seconds(record),
    }
    return {member: value for member, value in described.items() if value is not None}


def summarize(record: TrainingJobRecord) -> dict[str, Any]:
    summary = {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "TrainingJobStatus": record.status.value,
        "SecondaryStatus": record.secondary.value,
        "CreationTime": as_time(record.created_at),
        "LastModifiedTime": as_time(record.modified_at),
        "TrainingEndTime": _time(record.ended_at),
    }
    return {member: value for member, value in summary.items() if value is not None}


def _channel(channel: dict[str, Any]) -> dict[str, Any]:
    return {"CompressionType": "None", "RecordWrapperType": "None", **channel}


def _model_address(record: TrainingJobRecord) -> str:
    compressed = record.definition["OutputDataConfig"].get("CompressionType", "GZIP") == "GZIP"
    return f"{record.output_folder}/{'model.tar.gz' if compressed else 'model/'}"


def _seconds(record: TrainingJobRecord) -> dict[str, int]:
    """Returns the times of an ended job whose code ran; SageMaker's minimum is 1."""
    if record.started_at is None or record.ended_at is None:
        return {}
    return {
        "TrainingTimeInSeconds": max(1, round(record.total_seconds)),
        "BillableTimeInSeconds": max(1, round(record.run_seconds)),
    }


def _transition(one: Transition) -> dict[str, Any]:
    members = {
        "Status": one.status.value,
        "StartTime": as_time(one.started_at),
        "EndTime": _time(one.ended_at),
        "StatusMessage": one.message,
    }
    return {member: value for member, value in members.items() if value is not None}


def _metric(one: JobMetric) -> dict[str, Any]:
    return {"MetricName": one.name, "Value": one.value, "Timestamp": as_time(one.at)}


def _time(seconds: float | None) -> Any:
    return None if seconds is None else as_time(seconds)
