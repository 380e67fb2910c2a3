"""How many instances there may be, and SageMaker's answer to who asks for more."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import psutil

from sagehen.api.refusals import quota_exceeded
from sagehen.domain.instance_types import require_instance_type
from sagehen.domain.records import EndpointRecord, EndpointStatus
from sagehen.settings import Settings

__all__ = ["Machine", "check_capacity", "this_machine"]

_GPUS = Path("/proc/driver/nvidia/gpus")
_NOT_RUNNING = (EndpointStatus.FAILED, EndpointStatus.DELETING)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What all instances share."""

    vcpus: int
    memory_bytes: int
    gpus: int


def this_machine() -> Machine:
    """The machine that control runs on, which is the one its instances run on."""
    return Machine(
        vcpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        gpus=sum(1 for _ in _GPUS.iterdir()) if _GPUS.is_dir() else 0,
    )


def check_capacity(
    before: Sequence[EndpointRecord], after: EndpointRecord, settings: Settings, machine: Machine
) -> None:
    """Check that there is room to turn the endpoints there are into those with `after`.

    The old instances of an update count as long as they serve, as they do in SageMaker.

    Raises:
        AwsError: ResourceLimitExceeded; the message names what there is too little of.
    """
    used = _count(before)
    delta = _count([after])
    delta.subtract(_count(one for one in before if one.name == after.name))
    total, limit = used.total(), settings.max_endpoint_instances
    if delta.total() > max(0, limit - total):
        why = "The limit is Sagehen's setting max_endpoint_instances."
        raise quota_exceeded(
            "Number of instances across active endpoints", limit, total, delta.total(), why
        )
    if settings.strict_capacity:
        for instance_type, count in delta.items():
            room = _room(instance_type, used, machine)
            if count > room:
                limit, why = used[instance_type] + room, _why(machine)
                quota = f"{instance_type} for endpoint usage"
                raise quota_exceeded(quota, limit, used[instance_type], count, why)
            used[instance_type] += count


def _count(endpoints: Iterable[EndpointRecord]) -> Counter[str]:
    """The instances that endpoints want, by instance type."""
    total: Counter[str] = Counter()
    for endpoint in endpoints:
        if endpoint.status in _NOT_RUNNING:
            continue
        wanted: dict[tuple[str, str, str], int] = {}
        for deployment in filter(None, (endpoint.current, endpoint.target)):
            for variant in deployment.all_variants:
                key = (variant.instance_type, deployment.deployment_id, variant.name)
                wanted[key] = max(wanted.get(key, 0), variant.instance_count)
        for (instance_type, _, _), count in wanted.items():
            total[instance_type] += count
    return total


def _room(instance_type: str, used: Counter[str], machine: Machine) -> int:
    """How many more instances of a type the machine has room for."""
    one = require_instance_type(instance_type)
    left = machine
    for name, count in used.items():
        facts = require_instance_type(name)
        left = Machine(
            vcpus=left.vcpus - count * facts.vcpus,
            memory_bytes=left.memory_bytes - count * facts.memory_bytes,
            gpus=left.gpus - count * facts.gpus,
        )
    fits = [left.vcpus // one.vcpus, left.memory_bytes // one.memory_bytes]
    if one.gpus:
        fits.append(left.gpus // one.gpus)
    return max(0, min(fits))


def _why(machine: Machine) -> str:
    return (
        f"Sagehen's setting strict_capacity is on, and this machine has {machine.vcpus} vCPUs, "
        f"{machine.memory_bytes / 2**30:.1f} GiB of memory and {machine.gpus} GPUs."
    )
