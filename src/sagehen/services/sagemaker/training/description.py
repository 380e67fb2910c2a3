"""The answers of DescribeTrainingJob and ListTrainingJobs."""

from typing import Any

from sagehen.frame.job_specs import JobMetric
from sagehen.frame.named_records import as_time
from sagehen.services.sagemaker.training.records import TrainingJobRecord, Transition

__all__ = ["describe", "summarize"]

_COPIED_MEMBERS = (
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
    definition = record.definition
    described: dict[str, Any] = {
        **summarize(record),
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **{member: definition[member] for member in _COPIED_MEMBERS if member in definition},
        "AlgorithmSpecification": {
            "EnableSageMakerMetricsTimeSeries": False,
            **definition["AlgorithmSpecification"],
        },
        "InputDataConfig": [_channel(channel) for channel in definition.get("InputDataConfig", ())]
        or None,
        # The SageMaker SDK's attach() reads KmsKeyId even if it was not given.
        "OutputDataConfig": {
            "KmsKeyId": "",
            "CompressionType": "GZIP",
            **definition["OutputDataConfig"],
        },
        "ModelArtifacts": {"S3ModelArtifacts": _model_address(record)},
        "FailureReason": record.failure_reason,
        "TrainingStartTime": _time(record.started_at),
        "SecondaryStatusTransitions": [
            _transition(transition) for transition in record.transitions
        ],
        "FinalMetricDataList": [_metric(metric) for metric in record.metrics] or None,
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


def _transition(transition: Transition) -> dict[str, Any]:
    members = {
        "Status": transition.status.value,
        "StartTime": as_time(transition.started_at),
        "EndTime": _time(transition.ended_at),
        "StatusMessage": transition.message,
    }
    return {member: value for member, value in members.items() if value is not None}


def _metric(metric: JobMetric) -> dict[str, Any]:
    return {"MetricName": metric.name, "Value": metric.value, "Timestamp": as_time(metric.at)}


def _time(seconds: float | None) -> Any:
    return None if seconds is None else as_time(seconds)
