"""Specs and reports of instances, and the files that tell gateways why a container ended."""

from enum import StrEnum
from pathlib import Path

import msgspec

__all__ = [
    "ContainerReport",
    "ContainerSpec",
    "InstanceOwner",
    "InstanceReport",
    "InstanceSpec",
    "InstanceState",
    "read_end",
    "write_end",
]


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A container, from SageMaker's ContainerDefinition."""

    hostname: str
    """`ContainerHostname`; default `primary`, or `container-1`, … of several"""
    image: str
    model_data_url: str | None = None
    """`s3://bucket/key` of an archive; with `multi_model`, the archives' prefix"""
    model_data_compressed: bool = True
    """False for plain files (`ModelDataSource` CompressionType None)"""
    model_data_etag: str | None = None
    """version of the object at `model_data_url` when it was deployed"""
    environment: dict[str, str] = {}
    multi_model: bool = False
    model_cache: bool = True
    """`MultiModelConfig.ModelCacheSetting` is not `Disabled`"""
    network_isolation: bool = False
    """no access to the keys of the home"""


class InstanceOwner(StrEnum):
    """The kind of an instance's owner. Each kind has a reconciler of its own."""

    ENDPOINT = "endpoint"
    TRANSFORM_JOB = "transform-job"


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as control wants it. Equal specs need no restart."""

    instance_id: str
    endpoint_name: str
    """of a transform job: the job's name"""
    variant_name: str
    instance_type: str
    containers: tuple[ContainerSpec, ...]
    startup_timeout_seconds: float = 480
    """the longest time until `/ping` succeeds; 8 minutes in SageMaker"""
    download_timeout_seconds: float = 3600
    owner: InstanceOwner = InstanceOwner.ENDPOINT

    @property
    def title(self) -> str:
        """The owner, as failure reasons name it."""
        if self.owner is InstanceOwner.TRANSFORM_JOB:
            return f"transform job {self.endpoint_name}"
        return f"production variant {self.variant_name}"


class InstanceState(StrEnum):
    STARTING = "Starting"
    """fetches model data, or is not yet healthy"""
    IN_SERVICE = "InService"
    """answers `/ping`"""
    STOPPING = "Stopping"
    """finishes its requests and takes no new ones"""
    FAILED = "Failed"
    """not healthy; `failure_reason` says why. Not retried until control asks again"""


class ContainerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One of several containers of an instance."""

    address: str
    slots: int | None = None


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's view of an instance."""

    instance_id: str
    state: InstanceState
    address: str | None = None
    """`link:/path` or `tcp:127.0.0.1:port` of the first container"""
    failure_reason: str | None = None
    """SageMaker's sentence; set with FAILED"""
    slots: int | None = None
    """requests at once, if the container or its user says so"""
    run_id: str = ""
    """changes at each start, when containers lose their memory"""
    containers: tuple[ContainerReport, ...] = ()
    """empty with one container; else in order"""
    owner: InstanceOwner = InstanceOwner.ENDPOINT
    setup_seconds: float = 0.0
    """how long the last start took until the instance could serve, with its downloads"""
    node_id: str = ""
    """the node that runs it, as control fills in; empty on a machine of its own"""


def write_end(path: Path, run_id: str, reason: str | None) -> None:
    """Records why a run ended; None: unknown. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(f"{run_id}\n{reason or ''}")
    draft.replace(path)


def read_end(path: Path, run_id: str) -> str | None:
    """Returns "" for an unknown reason; None if that run's end is not recorded."""
    try:
        ended_run, _, reason = path.read_text(errors="replace").partition("\n")
    except OSError:
        return None
    return reason if ended_run == run_id else None
