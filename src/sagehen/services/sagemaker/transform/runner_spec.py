"""Makes the first message to a new runner of a job."""

from collections.abc import Mapping
from typing import Any

from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.runner_messages import (
    Capture,
    RunnerSettings,
    RunnerSpec,
    S3Access,
)

__all__ = ["make_runner_spec"]

_CLIENT_DEFAULTS = {"InvocationsTimeoutInSeconds": 600, "InvocationsMaxRetries": 3}


def make_runner_spec(
    job: TransformJobRecord,
    progress: TransformProgress,
    s3: S3Access,
    finished: Mapping[str, bool],
) -> RunnerSpec:
    """`finished`: whether objects have failed: those behind `done_through`, and those that data
    capture asks for."""
    through = progress.done_through
    definition = job.definition
    data_input, output = definition["TransformInput"], definition["TransformOutput"]
    source = data_input["DataSource"]["S3DataSource"]
    client = {**_CLIENT_DEFAULTS, **definition.get("ModelClientConfig", {})}
    processing = definition.get("DataProcessing", {})
    return RunnerSpec(
        job_id=job.job_id,
        job_name=job.name,
        job_arn=job.arn,
        s3=s3,
        started_at=job.started_at or job.created_at,
        input_type=source["S3DataType"],
        input_uri=source["S3Uri"],
        output_uri=output["S3OutputPath"],
        content_type=data_input.get("ContentType"),
        accept=output.get("Accept"),
        compression=data_input.get("CompressionType", "None"),
        split_type=data_input.get("SplitType", "None"),
        assemble_with=output.get("AssembleWith", "None"),
        batch_strategy=definition.get("BatchStrategy"),
        max_concurrent=definition.get("MaxConcurrentTransforms"),
        max_payload_mb=definition.get("MaxPayloadInMB"),
        timeout_seconds=client["InvocationsTimeoutInSeconds"],
        max_retries=client["InvocationsMaxRetries"],
        input_filter=processing.get("InputFilter", "$"),
        output_filter=processing.get("OutputFilter", "$"),
        join_source=processing.get("JoinSource", "None"),
        capture=_capture(definition.get("DataCaptureConfig")),
        options=job.options,
        done_through=progress.done_through,
        done=tuple(key for key in finished if through is None or key > through),
        failed=tuple(key for key, failed in finished.items() if failed),
        failed_error=progress.failed_error,
        done_records=progress.done_records,
        failed_records=progress.failed_records,
        settings=_settings(progress),
    )


def _capture(config: Mapping[str, Any] | None) -> Capture | None:
    if config is None:
        return None
    return Capture(
        uri=config["DestinationS3Uri"],
        generate_inference_id=config.get("GenerateInferenceId", False),
    )


def _settings(progress: TransformProgress) -> RunnerSettings | None:
    if progress.max_concurrent is None:
        return None
    assert progress.max_payload_mb is not None
    assert progress.batch_strategy is not None
    return RunnerSettings(
        max_concurrent=progress.max_concurrent,
        max_payload_mb=progress.max_payload_mb,
        batch_strategy=progress.batch_strategy,
    )
