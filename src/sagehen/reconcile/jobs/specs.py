"""What an agent is to run: a job's definition, in the agent's words."""

from typing import Any

from sagehen.domain.jobs import ChannelSpec, CheckpointSpec, JobSpec, MetricDefinition
from sagehen.domain.training import TrainingJobRecord

__all__ = ["job_spec"]

DEFAULT_VOLUME_GB = 30
"""Where VolumeSizeInGB is not given."""


def job_spec(record: TrainingJobRecord) -> JobSpec:
    """The newest attempt at a job; always the same for the same attempt."""
    definition = record.definition
    algorithm = definition["AlgorithmSpecification"]
    resources = definition["ResourceConfig"]
    output = definition["OutputDataConfig"]
    return JobSpec(
        attempt_id=record.attempt_id,
        job_name=record.name,
        job_arn=record.arn,
        image=algorithm["TrainingImage"],
        instance_type=resources["InstanceType"],
        instance_count=resources["InstanceCount"],
        volume_gb=resources.get("VolumeSizeInGB", DEFAULT_VOLUME_GB),
        entrypoint=tuple(algorithm.get("ContainerEntrypoint", ())),
        arguments=tuple(algorithm.get("ContainerArguments", ())),
        hyperparameters=definition.get("HyperParameters", {}),
        environment=definition.get("Environment", {}),
        channels=tuple(
            _channel(one, algorithm["TrainingInputMode"])
            for one in definition.get("InputDataConfig", ())
        ),
        output_uri=output["S3OutputPath"],
        compress_output=output.get("CompressionType", "GZIP") == "GZIP",
        checkpoint=_checkpoint(definition.get("CheckpointConfig")),
        metric_definitions=tuple(
            MetricDefinition(name=one["Name"], regex=one["Regex"])
            for one in algorithm.get("MetricDefinitions", ())
        ),
        network_isolation=definition.get("EnableNetworkIsolation", False),
        runtime_seconds=record.max_runtime_seconds - record.run_seconds,
    )


def _channel(channel: dict[str, Any], input_mode: str) -> ChannelSpec:
    source = channel["DataSource"]["S3DataSource"]
    return ChannelSpec(
        name=channel["ChannelName"],
        s3_uri=source["S3Uri"],
        data_type=source["S3DataType"],
        distribution=source.get("S3DataDistributionType", "FullyReplicated"),
        input_mode=channel.get("InputMode", input_mode),
        content_type=channel.get("ContentType"),
        compression=channel.get("CompressionType", "None"),
        record_wrapper=channel.get("RecordWrapperType", "None"),
        shuffle_seed=channel.get("ShuffleConfig", {}).get("Seed"),
        attribute_names=tuple(source.get("AttributeNames", ())),
    )


def _checkpoint(config: dict[str, str] | None) -> CheckpointSpec | None:
    if config is None:
        return None
    path = config.get("LocalPath", "/opt/ml/checkpoints").rstrip("/")
    return CheckpointSpec(s3_uri=config["S3Uri"], local_path=path)
