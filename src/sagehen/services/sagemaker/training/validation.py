"""Checks of CreateTrainingJob beyond the service model's, down to whether its input exists."""

import posixpath
from typing import Any

from sagehen.base.errors import Invalid
from sagehen.base.settings import Settings
from sagehen.frame.gpus import instance_fraction
from sagehen.frame.images import find_launch, image_name, server_of_its_own
from sagehen.frame.regular_expressions import compile_expression
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.errors import not_built, refuse_unbuilt, refused
from sagehen.services.sagemaker.image_versions import check_versions
from sagehen.services.sagemaker.job_arguments import check_bucket, check_input, check_instances

__all__ = ["check_channels", "check_training_job"]

_UNBUILT_SOURCES = {
    "FileSystemDataSource": "file systems as input (FileSystemDataSource)",
    "DatasetSource": "data sets as input (DatasetSource)",
}
_UNBUILT_CHANNELS = {
    "InstanceGroupNames": "heterogeneous clusters (InstanceGroupNames)",
    "ModelAccessConfig": "models as input (ModelAccessConfig)",
    "HubAccessConfig": "hubs (HubAccessConfig)",
}


def check_channels(params: dict[str, Any], region: str, objects: ObjectStore) -> None:
    channels = params.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refused(f"The channel {twice} is in InputDataConfig more than once.")
    for channel in channels:
        _check_channel(channel)
        source = channel["DataSource"]["S3DataSource"]
        check_input("S3Uri", source, f'role "{params["RoleArn"]}"', region, objects)


def _check_channel(channel: dict[str, Any]) -> None:
    name = channel["ChannelName"]
    if not name.strip("."):
        raise refused(f"A channel cannot be called {name!r}: it is to be the name of a folder.")
    source = channel["DataSource"]
    refuse_unbuilt(source, _UNBUILT_SOURCES)
    s3 = source.get("S3DataSource")
    if s3 is None:
        raise refused(f"The channel {name} needs a DataSource with an S3DataSource.")
    refuse_unbuilt(s3, _UNBUILT_CHANNELS)
    if s3["S3DataType"] == "Converse":
        raise not_built("conversations as input (S3DataType Converse)")
    if s3["S3DataType"] == "AugmentedManifestFile" and not s3.get("AttributeNames"):
        raise refused(f"The channel {name}: AugmentedManifestFile needs AttributeNames.")
    if channel.get("InputMode") == "Pipe":
        raise not_built("Pipe mode (InputMode of a channel); File and FastFile are")
    if channel.get("RecordWrapperType", "None") != "None":
        raise refused(f"The channel {name}: RecordWrapperType goes only with Pipe mode.")


LONGEST_RUNTIME_SECONDS = 28 * 86_400
LARGEST_ENVIRONMENT_BYTES = 32 * 1024
"""All keys and values together, as in a model."""

_UNBUILT = {
    "ServerlessJobConfig": "serverless training jobs (ServerlessJobConfig)",
    "ModelPackageConfig": "model packages (ModelPackageConfig)",
}
_UNBUILT_RESOURCES = {
    "InstanceGroups": "heterogeneous clusters (ResourceConfig.InstanceGroups)",
    "InstancePreferences": "a choice of instance types (ResourceConfig.InstancePreferences)",
    "TrainingPlanArn": "training plans (ResourceConfig.TrainingPlanArn)",
    "InstancePlacementConfig": "UltraServers (ResourceConfig.InstancePlacementConfig)",
}
_ROOT = "/opt/ml/"
_TAKEN = ("code", "input", "model", "output")
"""Used by the platform."""


def check_training_job(params: dict[str, Any], settings: Settings, objects: ObjectStore) -> None:
    """Checks CreateTrainingJob's parameters, not in a transaction: the object store may be far.

    Raises:
        AwsError: SageMaker would refuse them, or Sagehen cannot run them.
    """
    refuse_unbuilt(params, _UNBUILT)
    _check_algorithm(params, settings)
    _check_resources(params.get("ResourceConfig", {}), settings)
    _check_times(params)
    _check_environment(params.get("Environment", {}))
    _check_checkpoints(params.get("CheckpointConfig"), objects)
    output = params["OutputDataConfig"]["S3OutputPath"]
    check_bucket("S3OutputPath", output, objects)
    check_channels(params, settings.region, objects)


def _check_algorithm(params: dict[str, Any], settings: Settings) -> None:
    algorithm = params.get("AlgorithmSpecification")
    if algorithm is None:
        raise refused("AlgorithmSpecification is required: it names the image to run.")
    image = algorithm.get("TrainingImage")
    if bool(image) == bool(algorithm.get("AlgorithmName")):
        raise refused(
            "Specify exactly one of TrainingImage and AlgorithmName in AlgorithmSpecification."
        )
    if not image:
        raise not_built("algorithm resources (AlgorithmSpecification.AlgorithmName)")
    if algorithm["TrainingInputMode"] == "Pipe":
        raise not_built("Pipe mode (TrainingInputMode); File and FastFile are")
    access = algorithm.get("TrainingImageConfig", {}).get("TrainingRepositoryAuthConfig")
    if access:
        raise not_built("credentials of a registry (TrainingRepositoryAuthConfig)")
    for metric in algorithm.get("MetricDefinitions", []):
        _check_metric(metric)
    _check_command(image, algorithm, params.get("HyperParameters", {}), settings)


def _check_metric(metric: dict[str, str]) -> None:
    try:
        compile_expression(metric["Regex"])
    except Invalid as error:
        raise refused(f"The Regex of the metric {metric['Name']} {error}") from error


def _check_command(
    image: str, algorithm: dict[str, Any], parameters: dict[str, str], settings: Settings
) -> None:
    """Require an entry point, a script, or a command for the image."""
    check_versions(image, settings)
    if algorithm.get("ContainerEntrypoint") or parameters.get("sagemaker_program"):
        return
    launch = find_launch(image, settings.images, settings.launcher)
    if launch is not None and (launch.command or launch.docker):
        return
    server = server_of_its_own(image)
    problem = (
        f"The image {image} runs {server}, which Sagehen does not bring"
        if server
        else (f"Sagehen does not bring what is in the image {image}")
    )
    raise refused(
        f"{problem}. To run a script of your own, name it in the hyperparameter sagemaker_program "
        "and its archive in sagemaker_submit_directory, as the SageMaker SDK does with an "
        "entry_point; to run a command, give ContainerEntrypoint, or map the image's name to it in "
        f'sagehen.toml: [images] "{image_name(image)}" = ["python3", "train.py"].'
    )


def _check_resources(resources: dict[str, Any], settings: Settings) -> None:
    refuse_unbuilt(resources, _UNBUILT_RESOURCES)
    for member in ("SelectedInstanceType", "SelectedInstanceCount"):
        if member in resources:
            raise refused(
                f"ResourceConfig.{member} is read-only: DescribeTrainingJob returns it, and "
                "CreateTrainingJob does not accept it."
            )
    instance_type, count = resources.get("InstanceType"), resources.get("InstanceCount", 0)
    if instance_type is None or count < 1:
        raise refused("ResourceConfig needs an InstanceType and an InstanceCount of at least 1.")
    if resources.get("VolumeSizeInGB", 1) < 1:
        raise refused("VolumeSizeInGB must be at least 1.")
    check_instances(
        "training", instance_type, count, settings.max_job_instances, "max_job_instances"
    )


def _check_times(params: dict[str, Any]) -> None:
    stopping = params.get("StoppingCondition", {})
    runtime = stopping.get("MaxRuntimeInSeconds", 1)
    longest = stopping.get("MaxWaitTimeInSeconds")
    if runtime > LONGEST_RUNTIME_SECONDS:
        raise refused(
            f"MaxRuntimeInSeconds may be {LONGEST_RUNTIME_SECONDS} (28 days) at most; it is "
            f"{runtime}."
        )
    if params.get("EnableManagedSpotTraining"):
        if longest is None or longest < stopping.get("MaxRuntimeInSeconds", 86_400):
            raise refused(
                "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to "
                "MaxRuntimeInSeconds"
            )
    elif longest is not None:
        raise refused(
            "Invalid MaxWaitTimeInSeconds. It goes only with EnableManagedSpotTraining set to true"
        )


def _check_environment(environment: dict[str, str]) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in environment.items())
    if size > LARGEST_ENVIRONMENT_BYTES:
        raise refused(
            f"The environment variables of a training job may take {LARGEST_ENVIRONMENT_BYTES} "
            f"bytes together; these take {size}."
        )
    try:
        instance_fraction([environment])
    except Invalid as error:
        raise refused(str(error)) from error


def _check_checkpoints(config: dict[str, str] | None, objects: ObjectStore) -> None:
    if config is None:
        return
    check_bucket("CheckpointConfig.S3Uri", config["S3Uri"], objects)
    path = config.get("LocalPath")
    if path is None:
        return
    clean = posixpath.normpath(path)
    below = clean.removeprefix(_ROOT)
    if not clean.startswith(_ROOT) or below.partition("/")[0] in _TAKEN or not path.isprintable():
        raise refused(
            f"The LocalPath of CheckpointConfig is {path!r}. It must be a folder of its own below "
            f"{_ROOT}, as {_ROOT}checkpoints is; " + ", ".join(_TAKEN) + " there are taken."
        )
