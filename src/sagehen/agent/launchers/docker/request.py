"""Writes the engine's request for a container: SageMaker's contract in Docker's terms."""

import resource
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.agent.launchers.launcher import IMAGE_BASE, ImagePlan, LaunchPlan

__all__ = [
    "ImageInfo",
    "choose_port",
    "container_request",
    "find_mounts",
    "open_to_all_users",
    "require_labels",
]

PORT = 8080
SPARE_PORTS = "8200-8299"
OPEN_FILES = 65_536
OOM_SCORE = 500
"""of 1000: out of memory, the kernel ends containers first"""
CPU_NANOSECONDS = 1_000_000_000

_CAPABILITY = "com.amazonaws.sagemaker.capabilities."
_BINDS_TO_PORT = f"{_CAPABILITY}accept-bind-to-port"
_MULTI_MODEL = f"{_CAPABILITY}multi-models"


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """An image as the engine describes it."""

    name: str
    labels: Mapping[str, str]
    user: str = ""

    @property
    def runs_as_root(self) -> bool:
        return self.user.partition(":")[0] in ("", "0", "root")


def require_labels(image: ImagePlan, info: ImageInfo) -> None:
    """Raises CannotStart, with SageMaker's sentence, for an image that is not for multi-model
    endpoints."""
    if image.multi_model and info.labels.get(_MULTI_MODEL) != "true":
        raise CannotStart(
            f"Your Ecr Image {info.name} does not contain required {_MULTI_MODEL}=true Docker "
            "label(s)."
        )


def choose_port(image: ImagePlan, info: ImageInfo) -> int:
    """Containers of a pipeline get a port each, as in SageMaker, if their label accepts it."""
    return PORT + image.number - 1 if _is_told_its_port(image, info) else PORT


def _is_told_its_port(image: ImagePlan, info: ImageInfo) -> bool:
    return image.serves and image.containers > 1 and info.labels.get(_BINDS_TO_PORT) == "true"


def container_request(
    plan: LaunchPlan,
    info: ImageInfo,
    network: str,
    environment: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Returns the body of `POST /containers/create`. Reads the plan's folder.

    Args:
        network: its name, or `none`.
        environment: added to the plan's.
    """
    image = plan.image
    assert image is not None
    variables = {**plan.environment, **environment}
    if _is_told_its_port(image, info):
        variables["SAGEMAKER_BIND_TO_PORT"] = str(choose_port(image, info))
        variables["SAGEMAKER_SAFE_PORT_RANGE"] = SPARE_PORTS
    request: dict[str, Any] = {
        "Image": info.name,
        "Hostname": image.hostname,
        "Cmd": list(plan.command),
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": {**image.labels, **labels},
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(plan, network),
    }
    if image.entrypoint:
        request["Entrypoint"] = list(image.entrypoint)
    if network != "none":
        aliases = {"Aliases": [image.hostname]}
        request["NetworkingConfig"] = {"EndpointsConfig": {network: aliases}}
    return request


def _host_config(plan: LaunchPlan, network: str) -> dict[str, Any]:
    limits = plan.limits
    memory = limits.memory_bytes
    # A rootless engine may not give more than its user has.
    files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    config: dict[str, Any] = {
        "NetworkMode": network,
        "Mounts": find_mounts(plan.base) if plan.base is not None else [],
        # Docker's 64 MiB are too small for workers that share tensors.
        "ShmSize": (memory or machine_memory_bytes()) // 2,
        "Ulimits": [
            {"Name": "nofile", "Soft": files, "Hard": files},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "OomScoreAdj": OOM_SCORE,
        # For `docker logs` only: Sagehen keeps its own log.
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": str(plan.log_bytes), "max-file": "1"},
        },
        "RestartPolicy": {"Name": "no"},
    }
    if memory is not None:
        # The same: without swap.
        config |= {"Memory": memory, "MemorySwap": memory}
    if limits.cpus is not None:
        config["NanoCpus"] = limits.cpus * CPU_NANOSECONDS
    if limits.processes is not None:
        config["PidsLimit"] = limits.processes
    if plan.gpus:
        config["DeviceRequests"] = [
            {"Driver": "", "DeviceIDs": list(plan.gpus), "Capabilities": [["gpu"]]}
        ]
    return config


def find_mounts(base: Path) -> list[dict[str, Any]]:
    """Mounts each folder of `base` by itself: the image may have others in its /opt/ml.

    Large model data is a link to data that others share, so it is read-only.
    """
    mounts = []
    for folder in sorted(base.iterdir()):
        if not folder.is_dir() or (folder.name == "code" and not any(folder.iterdir())):
            continue
        mounts.append(
            {
                "Type": "bind",
                "Source": str(folder.resolve()),
                "Target": str(IMAGE_BASE / folder.name),
                "ReadOnly": folder.is_symlink(),
            }
        )
    return mounts


def open_to_all_users(folder: Path) -> None:
    """Lets an image's user other than root read and write `folder`. Blocks.

    The folders above keep other users of this machine out.
    """
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        runnable = 0o111 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0
        path.chmod(stat.S_IMODE(mode) | 0o666 | runnable)
