"""What each SageMaker instance type has, from the table of facts beside this file."""

import csv
from functools import cache
from pathlib import Path

import msgspec

from sagehen.base.errors import Invalid

__all__ = ["InstanceType", "instance_types", "require_instance_type"]

_TABLE = Path(__file__).with_name("instance_types.csv")


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """One instance type, as its maker advertises it."""

    instance_type: str
    vcpus: int
    memory_gib: float
    gpus: int
    """NVIDIA GPUs; other accelerators (Inferentia, Trainium, Gaudi) are not counted."""
    gpu_memory_gb: int
    """Of each GPU; 0 without one."""

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)


@cache
def instance_types() -> dict[str, InstanceType]:
    """Every known instance type, by its name."""
    with _TABLE.open(newline="") as table:
        rows = [msgspec.convert(row, InstanceType, strict=False) for row in csv.DictReader(table)]
    return {row.instance_type: row for row in rows}


def require_instance_type(name: str) -> InstanceType:
    """The facts of one instance type.

    Raises:
        Invalid: the table does not have it.
    """
    known = instance_types().get(name)
    if known is None:
        raise Invalid(f"The instance type {name!r} is not known to this version of Sagehen.")
    return known
