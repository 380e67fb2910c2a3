"""How the several containers of a model work together, and what each of them is called."""

from collections.abc import Sequence
from typing import Any

from sagehen.api.refusals import refused
from sagehen.domain.routes import ExecutionMode

__all__ = ["check_execution", "execution_mode", "hostnames"]

ONLY_CONTAINER = "primary"

_Container = dict[str, Any]


def execution_mode(definition: dict[str, Any]) -> ExecutionMode:
    """Of CreateModel's parameters; without containers to choose from it means nothing."""
    mode = definition.get("InferenceExecutionConfig", {}).get("Mode")
    return ExecutionMode(mode or ExecutionMode.SERIAL)


def hostnames(containers: Sequence[_Container]) -> list[str]:
    """Of each container: the one that it is given, or SageMaker's own by its place."""
    if len(containers) == 1:
        return [containers[0].get("ContainerHostname", ONLY_CONTAINER)]
    return [
        container.get("ContainerHostname", f"container-{number}")
        for number, container in enumerate(containers, 1)
    ]


def check_execution(mode: ExecutionMode, containers: Sequence[_Container]) -> None:
    """Check that the containers of one model go together.

    Raises:
        AwsError: SageMaker would refuse them.
    """
    given = [one["ContainerHostname"] for one in containers if "ContainerHostname" in one]
    if len({hostname.lower() for hostname in given}) < len(given):
        raise refused(f"The ContainerHostnames of a model must differ; these are {_said(given)}.")
    if mode is ExecutionMode.DIRECT:
        _check_direct(containers, given)
    elif len(containers) > 1:
        _check_pipeline(containers, given)


def _check_direct(containers: Sequence[_Container], given: Sequence[str]) -> None:
    if len(containers) < 2:
        raise refused(
            "InferenceExecutionConfig with Mode Direct needs more than one container in Containers."
        )
    if len(given) < len(containers):
        raise refused(
            "With InferenceExecutionConfig of Mode Direct every container needs a "
            "ContainerHostname, by which TargetContainerHostname names it."
        )


def _check_pipeline(containers: Sequence[_Container], given: Sequence[str]) -> None:
    if given and len(given) < len(containers):
        raise refused(
            "Specify a ContainerHostname for every container of an inference pipeline or for none; "
            f"there are only {_said(given)}."
        )
    if sum(one.get("Mode") == "MultiModel" for one in containers) > 1:
        raise refused(
            "More than one container in MultiModel mode is not supported with inference pipeline."
        )


def _said(given: Sequence[str]) -> str:
    return ", ".join(given)
