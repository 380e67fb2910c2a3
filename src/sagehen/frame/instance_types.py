"""The vCPUs, memory and GPUs of SageMaker's instance types, from `instance_types.csv`."""

import csv
from functools import cache
from pathlib import Path

import msgspec

from sagehen.base.errors import Invalid

__all__ = [
    "InstanceType",
    "find_instance_type",
    "instance_types",
    "is_serverless",
    "require_instance_type",
    "serverless_type",
]

_TABLE = Path(__file__).with_name("instance_types.csv")


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type, as advertised by AWS."""

    instance_type: str
    vcpus: int
    memory_gib: float
    gpus: int
    """NVIDIA only; not Inferentia, Trainium or Gaudi"""
    gpu_memory_gb: int
    """of each GPU; 0 without one"""

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)


@cache
def instance_types() -> dict[str, InstanceType]:
    with _TABLE.open(newline="") as table:
        rows = [msgspec.convert(row, InstanceType, strict=False) for row in csv.DictReader(table)]
    return {row.instance_type: row for row in rows}


_SERVERLESS = "serverless-"
_MEMORY_MB_PER_VCPU = 1769
"""as of AWS Lambda; SageMaker says only that vCPUs grow with the memory"""


def serverless_type(memory_mb: int) -> str:
    """Returns our own name for the resources of a serverless variant's instances."""
    return f"{_SERVERLESS}{memory_mb}MB"


def is_serverless(name: str) -> bool:
    return name.startswith(_SERVERLESS)


def find_instance_type(name: str) -> InstanceType | None:
    size = name.removeprefix(_SERVERLESS).removesuffix("MB")
    if is_serverless(name) and size.isdecimal():
        return _serverless(name, int(size))
    return instance_types().get(name)


def _serverless(name: str, memory_mb: int) -> InstanceType:
    return InstanceType(
        instance_type=name,
        vcpus=max(1, round(memory_mb / _MEMORY_MB_PER_VCPU)),
        memory_gib=memory_mb / 1024,
        gpus=0,
        gpu_memory_gb=0,
    )


def require_instance_type(name: str) -> InstanceType:
    """Raises Invalid where the table lacks the type."""
    instance_type = find_instance_type(name)
    if instance_type is None:
        raise Invalid(f"The instance type {name!r} is not known to this version of Sagehen.")
    return instance_type
