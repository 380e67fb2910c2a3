"""Messages between control and the agents of a cluster about a node and the work on it."""

from collections.abc import Mapping, Sequence

import msgspec

from sagehen import __version__
from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.gpus import WHOLE, instance_fraction
from sagehen.frame.instance_types import find_instance_type
from sagehen.frame.job_specs import JobSpec

__all__ = [
    "AGENT_API_VERSIONS",
    "EPOCH_HEADER",
    "LeaseAnswer",
    "LeaseRequest",
    "ModelList",
    "NodeDescription",
    "NodeRequests",
    "Resources",
    "RunningSpecs",
    "check_versions",
    "instance_resources",
    "job_resources",
    "model_version",
]

AGENT_API_VERSIONS = (1,)
"""Versions of the agent's API that this Sagehen speaks, in any of which control and agent may
understand each other. A change that the version before does not understand gets a new number, and
the old one is spoken for one more release, so that nodes can be upgraded one after another."""
EPOCH_HEADER = "x-sagehen-epoch"
"""carries the leading control's epoch in each request to an agent; it grows with each leader"""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a node, or those that an instance or job needs."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            cpus=self.cpus + other.cpus,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            gpus=self.gpus + other.gpus,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            cpus=self.cpus - other.cpus,
            memory_bytes=self.memory_bytes - other.memory_bytes,
            gpus=self.gpus - other.gpus,
        )

    def fits_in(self, free: "Resources") -> bool:
        # Fractions of GPUs are added and subtracted as floats.
        return (
            self.cpus <= free.cpus + 1e-6
            and self.memory_bytes <= free.memory_bytes
            and self.gpus <= free.gpus + 1e-6
        )


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The model data that a node has on disk, as `model_version` names it."""

    version: int
    models: tuple[str, ...]


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's answer about its node."""

    node_id: str
    run_id: str
    """changes when the agent starts anew, without its instances"""
    resources: Resources
    pids: tuple[int, ...] = ()
    """all processes of ours on the node"""


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Control's heartbeat. It lets the agent run jobs for `seconds` after `answered_at`, the time
    in the newest answer that control has received."""

    seconds: float
    run_id: str = ""
    answered_at: float | None = None
    versions: tuple[int, ...] = (1,)
    """of the agent's API, that control speaks"""
    sagehen: str = ""
    """control's version"""


class NodeRequests(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The invocations in flight on the instances of a node."""

    called: tuple[str, ...] = ()
    """the routed instances that have some, by id"""
    leaving: dict[str, int] = {}
    """the number on each instance that has left the routes, as far as this node has any"""


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    answered_at: float
    """by the agent's own clock, for the next request only"""
    requests: NodeRequests = NodeRequests()
    models_version: int = 0
    """of the agent's ModelList; 0: it has none"""
    versions: tuple[int, ...] = (1,)
    """of its API, that the agent speaks"""
    sagehen: str = ""
    """the agent's version"""


class RunningSpecs(msgspec.Struct, frozen=True, kw_only=True):
    """The specs of everything that an agent runs, for a control that has not sent them."""

    instances: tuple[InstanceSpec, ...] = ()
    jobs: tuple[JobSpec, ...] = ()


def model_version(url: str, etag: str | None) -> str:
    """Names model data, and its version where that is known."""
    return url if etag is None else f"{url}#{etag}"


def check_versions(other: "LeaseRequest | LeaseAnswer") -> None:
    """Raises Invalid where the other side speaks no version of the agent's API that we speak."""
    if not set(other.versions) & set(AGENT_API_VERSIONS):
        raise Invalid(
            f"The other side is Sagehen {other.sagehen or 'of an unknown version'} and speaks the "
            f"versions {list(other.versions)} of the agent's API; this is Sagehen {__version__} "
            f"and speaks {list(AGENT_API_VERSIONS)}. Upgrade the nodes one release at a time."
        )


def instance_resources(spec: InstanceSpec) -> Resources:
    """Raises Invalid for a malformed fraction of GPUs."""
    return _resources(spec.instance_type, [each.environment for each in spec.containers])


def job_resources(spec: JobSpec) -> Resources:
    """Returns what all hosts of a job need, which run on one node. Raises Invalid."""
    of_host = _resources(spec.instance_type, [spec.environment])
    return Resources(
        cpus=of_host.cpus * spec.instance_count,
        memory_bytes=of_host.memory_bytes * spec.instance_count,
        gpus=of_host.gpus * spec.instance_count,
    )


def _resources(instance_type: str, environments: Sequence[Mapping[str, str]]) -> Resources:
    found = find_instance_type(instance_type)
    if found is None:
        return Resources()  # the agent refuses or runs it, as on one machine
    fraction = instance_fraction(environments) if found.gpus else WHOLE
    return Resources(
        cpus=found.vcpus, memory_bytes=found.memory_bytes, gpus=float(found.gpus * fraction)
    )
