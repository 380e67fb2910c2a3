"""The vCPUs, memory and GPUs of SageMaker's instance types, from `instance_types.csv`."""

import csv
from functools import cache
from pathlib import Path

import msgspec

from sagehen.base.errors import Invalid

__all__ = ["InstanceType", "instance_types", "require_instance_type"]

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


def require_instance_type(name: str) -> InstanceType:
    """Raises Invalid where the table lacks the type."""
    instance_type = instance_types().get(name)
    if instance_type is None:
        raise Invalid(f"The instance type {name!r} is not known to this version of Sagehen.")
    return instance_type
