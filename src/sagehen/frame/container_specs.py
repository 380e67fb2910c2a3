"""What an instance is to run: said by control, done by the agent, told to the gateways.

Why a container of an instance has ended: a file in the home's run folder, written by the agent
when it sees the end, read by gateways for the callers whose requests ended with it.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

__all__ = [
    "ContainerReport",
    "ContainerSpec",
    "InstanceReport",
    "InstanceSpec",
    "InstanceState",
    "read_end",
    "write_end",
]


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One container of an instance, from SageMaker's ContainerDefinition."""

    hostname: str
    """`ContainerHostname`; where none is given `primary`, or `container-1`, `container-2`, … of
    several."""
    image: str
    model_data_url: str | None = None
    """`s3://bucket/key` of an archive; with `multi_model`, the prefix that holds the archives."""
    model_data_compressed: bool = True
    """False where `ModelDataSource` gives plain files (CompressionType None)."""
    model_data_etag: str | None = None
    """The version of the one object at `model_data_url` that was there when it was deployed."""
    environment: dict[str, str] = {}
    multi_model: bool = False
    model_cache: bool = True
    """`MultiModelConfig.ModelCacheSetting` is not `Disabled`."""
    network_isolation: bool = False
    """It is not to see the keys of the home."""


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One instance as control wants it. Equal specs need no restart."""

    instance_id: str
    endpoint_name: str
    variant_name: str
    instance_type: str
    containers: tuple[ContainerSpec, ...]
    startup_timeout_seconds: float = 480
    """How long `/ping` may fail after the start: 8 minutes in SageMaker."""
    download_timeout_seconds: float = 3600


class InstanceState(StrEnum):
    """What an instance does now, as its agent sees it."""

    STARTING = "Starting"
    """Fetching model data, or started and not yet healthy."""
    IN_SERVICE = "InService"
    """Answers `/ping`."""
    STOPPING = "Stopping"
    """Finishes what it began and takes nothing new."""
    FAILED = "Failed"
    """Could not be made healthy; `failure_reason` says why. Not tried again until asked."""


class ContainerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One of several containers of an instance."""

    address: str
    slots: int | None = None


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One instance as its agent sees it."""

    instance_id: str
    state: InstanceState
    address: str | None = None
    """`unix:/path` or `tcp:127.0.0.1:port` of the first container, once there is one."""
    failure_reason: str | None = None
    """SageMaker's sentence; set with FAILED."""
    slots: int | None = None
    """How many requests it may work on at once, where it or its user says so."""
    run_id: str = ""
    """Another one each time its containers are started: what they remembered is lost."""
    containers: tuple[ContainerReport, ...] = ()
    """Where there are several and they run: each, in their order."""


def write_end(path: Path, run_id: str, reason: str | None) -> None:
    """Note the end of the run of that id; with no reason where nothing is known. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(f"{run_id}\n{reason or ''}")
    draft.replace(path)


def read_end(path: Path, run_id: str) -> str | None:
    """The reason, empty where nothing is known; None: that run's end is not noted."""
    try:
        noted, _, reason = path.read_text(errors="replace").partition("\n")
    except OSError:
        return None
    return reason if noted == run_id else None
