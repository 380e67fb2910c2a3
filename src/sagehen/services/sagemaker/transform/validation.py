"""Checks of CreateTransformJob beyond the service model's, down to whether its input exists."""

from typing import Any

from sagehen.base.errors import Invalid
from sagehen.base.settings import Settings
from sagehen.frame.gpus import instance_fraction
from sagehen.frame.routes import ExecutionMode
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.errors import not_built, refused
from sagehen.services.sagemaker.hosting.containers import (
    containers_of,
    execution_mode,
    offline_results_of,
)
from sagehen.services.sagemaker.hosting.records import ModelRecord
from sagehen.services.sagemaker.job_arguments import check_bucket, check_input, check_instances
from sagehen.services.sagemaker.transform.format_options import (
    FORMAT_OPTIONS,
    read_format_options,
)
from sagehen.services.sagemaker.transform.job_records import OPTION_PREFIX, options_of
from sagehen.services.sagemaker.transform.runner.parameters import DEFAULTS, MAX_PAYLOAD_MB
from sagehen.services.sagemaker.transform.runner.tolerance import NAME as MAX_FAILED_RECORDS
from sagehen.services.sagemaker.transform.runner.tolerance import parse_tolerance

__all__ = ["check_model", "check_transform_job"]

MAX_INSTANCES = 100

_UNBUILT_TYPES = {
    "AugmentedManifestFile": "augmented manifests as input of a transform job",
    "Converse": "conversations as input (S3DataType Converse)",
}


def check_transform_job(params: dict[str, Any], settings: Settings, objects: ObjectStore) -> None:
    """Checks CreateTransformJob's parameters, not in a transaction: the object store may be far.

    Raises:
        AwsError: SageMaker would refuse them, or Sagehen cannot run them.
    """
    _check_payload(params)
    _check_resources(params["TransformResources"], settings)
    _check_environment(params.get("Environment", {}))
    _check_processing(params)
    check_bucket("TransformOutput.S3OutputPath", params["TransformOutput"]["S3OutputPath"], objects)
    capture = params.get("DataCaptureConfig")
    if capture is not None:
        check_bucket("DataCaptureConfig.DestinationS3Uri", capture["DestinationS3Uri"], objects)
    _check_input(params["TransformInput"]["DataSource"]["S3DataSource"], settings.region, objects)


def check_model(model: ModelRecord, params: dict[str, Any]) -> None:
    """Raises AwsError for models that a transform job, or this one, cannot run."""
    containers = containers_of(model.definition)
    results = offline_results_of(model.definition)
    if results is not None and results.only:
        raise refused(
            f"The model {model.name} is never run (SAGEHEN_OFFLINE_RESULTS_ONLY is true): its "
            "answers are offline results. Create a model without that variable."
        )
    if len(containers) > 1 and _streams(params):
        raise refused(
            "MaxPayloadInMB is 0, which streams whole objects through one container, and the model "
            f"{model.name} is a pipeline of {len(containers)}. Set MaxPayloadInMB to at most "
            f"{MAX_PAYLOAD_MB}, or split the objects (SplitType)."
        )
    if any(container.get("Mode") == "MultiModel" for container in containers):
        raise refused(
            f"The model {model.name} has a container in MultiModel mode, which is not supported "
            "with batch transform. Create a model of one archive."
        )
    if execution_mode(model.definition) is ExecutionMode.DIRECT:
        raise refused(
            f"The containers of the model {model.name} are invoked one by one "
            "(InferenceExecutionConfig with Mode Direct), which a transform job cannot do. Create "
            "a model of one of them, or of all with Mode Serial."
        )


def _streams(params: dict[str, Any]) -> bool:
    """Whether the job asks for whole objects to be streamed, as `ObjectPlans.streams` says."""
    if params.get("MaxPayloadInMB") != 0:
        return False
    is_processed = params.get("DataProcessing") or params.get("DataCaptureConfig", {}).get(
        "GenerateInferenceId"
    )
    return params["TransformInput"].get("SplitType", "None") == "None" and not is_processed


def _check_payload(params: dict[str, Any]) -> None:
    payload = params.get("MaxPayloadInMB")
    concurrent = params.get("MaxConcurrentTransforms") or 1
    if payload is not None and payload > MAX_PAYLOAD_MB:
        raise refused(
            f"MaxPayloadInMB is {payload}; it may be {MAX_PAYLOAD_MB} at most. To send larger "
            "objects as a stream, set it to 0."
        )
    megabytes = DEFAULTS.max_payload_mb if payload is None else payload
    if megabytes * concurrent > MAX_PAYLOAD_MB:
        raise refused(
            "MaxConcurrentTransforms * MaxPayloadInMB must not exceed "
            f"{MAX_PAYLOAD_MB}: {concurrent} * {megabytes} is {concurrent * megabytes}. "
            "Lower one of them."
        )


def _check_resources(resources: dict[str, Any], settings: Settings) -> None:
    kind, count = resources["InstanceType"], resources["InstanceCount"]
    if count > MAX_INSTANCES:
        raise refused(f"InstanceCount is {count}; it may be {MAX_INSTANCES} at most.")
    limit = settings.max_transform_instances
    check_instances("transform", kind, count, limit, "max_transform_instances")


def _check_environment(environment: dict[str, str]) -> None:
    options = options_of(environment)
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        known = ", ".join(OPTION_PREFIX + name for name in _OPTIONS)
        raise refused(
            f"There is no option {OPTION_PREFIX}{unknown[0]} of transform jobs. There are {known}."
        )
    try:
        instance_fraction([environment])
        if MAX_FAILED_RECORDS in options:
            parse_tolerance(options[MAX_FAILED_RECORDS])
    except Invalid as error:
        raise refused(str(error)) from error


_OPTIONS = (MAX_FAILED_RECORDS, *FORMAT_OPTIONS)


def _check_processing(params: dict[str, Any]) -> None:
    options = options_of(params.get("Environment", {}))
    capture = params.get("DataCaptureConfig", {})
    if not (params.get("DataProcessing") or capture.get("GenerateInferenceId") or options):
        return
    # Imports NumPy, which other jobs do not need in this process.
    from sagehen.services.sagemaker.transform.data_processing.checks import check_data_processing

    data_input, output = params["TransformInput"], params["TransformOutput"]
    processing = params.get("DataProcessing", {})
    try:
        formats = read_format_options(options)
        check_data_processing(
            content_type=data_input.get("ContentType"),
            accept=output.get("Accept"),
            split_type=data_input.get("SplitType", "None"),
            assemble_with=output.get("AssembleWith", "None"),
            input_filter=processing.get("InputFilter", "$"),
            output_filter=processing.get("OutputFilter", "$"),
            join_source=processing.get("JoinSource", "None"),
            generate_inference_id=capture.get("GenerateInferenceId", False),
            options=formats,
        )
    except Invalid as error:
        raise refused(str(error)) from error


def _check_input(source: dict[str, Any], region: str, objects: ObjectStore) -> None:
    kind = source["S3DataType"]
    if kind in _UNBUILT_TYPES:
        raise not_built(f"{_UNBUILT_TYPES[kind]}; S3Prefix and ManifestFile are")
    member = "TransformInput.DataSource.S3DataSource.S3Uri"
    check_input(member, source, "role of the model", region, objects)
