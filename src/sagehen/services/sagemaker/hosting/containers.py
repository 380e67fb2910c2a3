"""Checks of a model's containers (they raise AwsError), and the specs of the containers that
run."""

from collections.abc import Mapping, Sequence
from typing import Any

from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import ContainerSpec
from sagehen.frame.context import RequestContext
from sagehen.frame.gpus import instance_fraction
from sagehen.frame.images import (
    BUILT_IN_IMAGES,
    find_launch,
    image_name,
    server_of_its_own,
    unsuited,
)
from sagehen.frame.offline_results.definition import OfflineResults, read_offline_results
from sagehen.frame.routes import ExecutionMode
from sagehen.services.sagemaker.errors import not_built, refuse_unbuilt, refused
from sagehen.services.sagemaker.hosting.model_data import check_model_data
from sagehen.services.sagemaker.image_versions import check_versions

__all__ = [
    "check_containers",
    "check_execution",
    "container_specs",
    "containers_of",
    "execution_mode",
    "hostnames",
    "offline_results_of",
    "scales_from_zero",
]

ONLY_CONTAINER = "primary"

_Container = dict[str, Any]


def execution_mode(definition: dict[str, Any]) -> ExecutionMode:
    """Returns the mode, which means nothing with one container."""
    mode = definition.get("InferenceExecutionConfig", {}).get("Mode")
    return ExecutionMode(mode or ExecutionMode.SERIAL)


def hostnames(containers: Sequence[_Container]) -> list[str]:
    """Returns the containers' own hostnames, or SageMaker's numbered ones."""
    if len(containers) == 1:
        return [containers[0].get("ContainerHostname", ONLY_CONTAINER)]
    return [
        container.get("ContainerHostname", f"container-{number}")
        for number, container in enumerate(containers, 1)
    ]


def check_execution(mode: ExecutionMode, containers: Sequence[_Container]) -> None:
    names = [
        container["ContainerHostname"]
        for container in containers
        if "ContainerHostname" in container
    ]
    if len({hostname.lower() for hostname in names}) < len(names):
        raise refused(f"The ContainerHostnames of a model must differ; these are {_joined(names)}.")
    if mode is ExecutionMode.DIRECT:
        _check_direct(containers, names)
    elif len(containers) > 1:
        _check_pipeline(containers, names)


def _check_direct(containers: Sequence[_Container], names: Sequence[str]) -> None:
    if len(containers) < 2:
        raise refused(
            "InferenceExecutionConfig with Mode Direct needs more than one container in Containers."
        )
    if len(names) < len(containers):
        raise refused(
            "With InferenceExecutionConfig of Mode Direct every container needs a "
            "ContainerHostname, by which TargetContainerHostname names it."
        )


def _check_pipeline(containers: Sequence[_Container], names: Sequence[str]) -> None:
    if names and len(names) < len(containers):
        raise refused(
            "Specify a ContainerHostname for every container of an inference pipeline or for none; "
            f"there are only {_joined(names)}."
        )
    if sum(container.get("Mode") == "MultiModel" for container in containers) > 1:
        raise refused(
            "More than one container in MultiModel mode is not supported with inference pipeline."
        )


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names)


LARGEST_ENVIRONMENT_BYTES = 32 * 1024
"""All keys and values of a model's containers: SageMaker's limit."""

_UNBUILT = {
    "ModelPackageName": "model packages (ModelPackageName)",
    "InferenceSpecificationName": "model packages (InferenceSpecificationName)",
    "AdditionalModelDataSources": "additional model data sources (AdditionalModelDataSources)",
    "ContainerMetricsConfig": "container metrics (ContainerMetricsConfig)",
}
_UNBUILT_SOURCE = {
    member: f"ModelDataSource.S3DataSource.{member}"
    for member in ("HubAccessConfig", "ManifestS3Uri", "ETag", "ManifestEtag")
}


def containers_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    primary = definition.get("PrimaryContainer")
    return [primary] if primary is not None else list(definition.get("Containers", ()))


def check_containers(call: RequestContext, params: dict[str, Any]) -> None:
    if ("PrimaryContainer" in params) == bool(params.get("Containers")):
        raise refused("Specify exactly one of PrimaryContainer and Containers.")
    containers = containers_of(params)
    check_execution(execution_mode(params), containers)
    _check_environment(containers)
    _check_offline_results(execution_mode(params), containers)
    _check_scale_from_zero(containers)
    results = offline_results_of(params)
    for container in containers:
        _check_container(container)
        if results is None or not results.only:
            _check_image(call, container)
        check_model_data(call, container, params.get("ExecutionRoleArn"))


def offline_results_of(definition: dict[str, Any]) -> OfflineResults | None:
    """Returns what a model's variables define, which CreateModel has checked."""
    for container in containers_of(definition):
        results = read_offline_results(container.get("Environment", {}))
        if results is not None:
            return results
    return None


SCALE_FROM_ZERO = "SAGEHEN_SCALE_FROM_ZERO"
"""of a model's container: the first call to a variant without instances starts one"""
_SWITCHES = {"": False, "false": False, "0": False, "true": True, "1": True}


def scales_from_zero(definition: dict[str, Any]) -> bool:
    """Whether a variable of the model asks for it, which CreateModel has checked."""
    return any(
        _SWITCHES.get(container.get("Environment", {}).get(SCALE_FROM_ZERO, "").lower(), False)
        for container in containers_of(definition)
    )


def _check_scale_from_zero(containers: Sequence[_Container]) -> None:
    for container in containers:
        value = container.get("Environment", {}).get(SCALE_FROM_ZERO, "")
        if value.lower() not in _SWITCHES:
            raise refused(f"{SCALE_FROM_ZERO} is {value[:40]!r}; it must be true or false.")


def container_specs(
    definition: dict[str, Any], versions: Mapping[str, str], isolated: bool = False
) -> tuple[ContainerSpec, ...]:
    """Returns what to run; `versions` are ETags by address. Containers have no network if either
    the model's EnableNetworkIsolation or `isolated`, that of the endpoint config, is true."""
    containers = containers_of(definition)
    named = zip(hostnames(containers), containers, strict=True)
    isolated = isolated or definition.get("EnableNetworkIsolation", False)
    return tuple(_spec(hostname, container, versions, isolated) for hostname, container in named)


def _spec(
    hostname: str, container: dict[str, Any], versions: Mapping[str, str], isolated: bool
) -> ContainerSpec:
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    url = source["S3Uri"] if source else container.get("ModelDataUrl")
    cache = container.get("MultiModelConfig", {}).get("ModelCacheSetting")
    return ContainerSpec(
        hostname=hostname,
        image=container["Image"],
        model_data_url=url,
        model_data_etag=versions.get(url) if url else None,
        model_data_compressed=source is None or source["CompressionType"] == "Gzip",
        environment=container.get("Environment", {}),
        multi_model=container.get("Mode") == "MultiModel",
        model_cache=cache != "Disabled",
        network_isolation=isolated,
    )


def _check_environment(containers: list[dict[str, Any]]) -> None:
    pairs = [pair for container in containers for pair in container.get("Environment", {}).items()]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in pairs)
    if size > LARGEST_ENVIRONMENT_BYTES:
        raise refused(
            f"The environment variables of a model may take {LARGEST_ENVIRONMENT_BYTES} bytes "
            f"together; these take {size}."
        )
    try:
        instance_fraction([container.get("Environment", {}) for container in containers])
    except Invalid as error:
        raise refused(str(error)) from error


def _check_offline_results(mode: ExecutionMode, containers: Sequence[_Container]) -> None:
    try:
        found = [read_offline_results(container.get("Environment", {})) for container in containers]
    except Invalid as error:
        raise refused(str(error)) from error
    count = len(found) - found.count(None)
    if count > 1:
        raise refused(
            "Only one container of a model may have the variables SAGEHEN_OFFLINE_RESULTS…: the "
            "results stand for the answer of all containers together."
        )
    if count and (
        mode is ExecutionMode.DIRECT
        or any(container.get("Mode") == "MultiModel" for container in containers)
    ):
        raise refused(
            "SAGEHEN_OFFLINE_RESULTS is not supported for containers of Mode MultiModel or with "
            "InferenceExecutionConfig of Mode Direct: the results are those of one model."
        )


def _check_container(container: dict[str, Any]) -> None:
    refuse_unbuilt(container, _UNBUILT)
    if not container.get("Image"):
        raise refused(
            "Specify one of either Image and Model Data URL or ModelPackageName in container "
            "definition."
        )
    if "ModelDataUrl" in container and "ModelDataSource" in container:
        raise refused("Specify only one of ModelDataUrl and ModelDataSource.")
    if "ModelDataSource" in container:
        _check_source(container)
    if container.get("Mode") == "MultiModel" and not container.get("ModelDataUrl"):
        raise refused("A container of Mode MultiModel needs a ModelDataUrl.")


def _check_image(call: RequestContext, container: dict[str, Any]) -> None:
    settings = call.settings
    launch = find_launch(container["Image"], settings.images, settings.launcher)
    if launch is None:
        raise _unknown_image(container["Image"])
    if launch.docker and container.get("ImageConfig", {}).get("RepositoryAuthConfig"):
        raise not_built(
            "credentials of a registry by a Lambda function (ImageConfig.RepositoryAuthConfig); "
            "leave it out and `docker login` to the registry as the server's user"
        )
    check_versions(container["Image"], settings)
    if reason := unsuited(container["Image"], settings.images, settings.launcher):
        raise refused(f"The image {container['Image']} {reason}")


def _check_source(container: dict[str, Any]) -> None:
    source = container["ModelDataSource"].get("S3DataSource")
    if source is None:
        raise refused("ModelDataSource needs an S3DataSource.")
    if container.get("Mode") == "MultiModel":
        raise refused("ModelDataSource cannot be used by a container of Mode MultiModel.")
    refuse_unbuilt(source, _UNBUILT_SOURCE)
    if source["S3DataType"] == "S3Prefix" and source["CompressionType"] == "Gzip":
        raise refused("CompressionType Gzip needs S3DataType S3Object.")


def _unknown_image(image: str) -> Exception:
    if server := server_of_its_own(image):
        return refused(
            f"The image {image} runs {server}, which Sagehen does not bring. Install that and map "
            "the image's name to the command that starts it, in sagehen.toml: [images] "
            f'"{image_name(image)}" = ["python3", "serve.py"]. The command must answer GET /ping '
            "and POST /invocations on the port in SAGEMAKER_BIND_TO_PORT."
        )
    known = ", ".join(pattern for pattern, _ in BUILT_IN_IMAGES)
    return refused(
        f"Sagehen does not know how to run the image {image}. The repository names it knows are "
        f"{known}. To run an image of your own, map its name to a command in sagehen.toml: "
        '[images] "my-image" = ["python3", "serve.py"].'
    )
