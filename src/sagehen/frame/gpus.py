"""Fractions of GPUs, and the report of a node's GPUs and their holders."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from sagehen.base.errors import Invalid
from sagehen.frame.container_specs import InstanceOwner, InstanceSpec

__all__ = [
    "FRACTION_VARIABLE",
    "WHOLE",
    "GpuHolder",
    "GpuList",
    "GpuReport",
    "instance_fraction",
    "read_fraction",
]

FRACTION_VARIABLE = "SAGEHEN_GPU_FRACTION"
"""of a container or job: the share of each GPU that it takes"""
WHOLE = Fraction(1)
_FRACTION = re.compile(r"0?\.[0-9]{1,3}|1(\.0{1,3})?")


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of an endpoint or transform job, or a host of a training job, that has a share
    of a GPU."""

    endpoint: str | None = None
    variant: str | None = None
    instance: str | None = None
    training_job: str | None = None
    transform_job: str | None = None
    host: str | None = None
    fraction: float = 1.0

    @classmethod
    def of_instance(cls, spec: InstanceSpec) -> "GpuHolder":
        if spec.owner is InstanceOwner.TRANSFORM_JOB:
            return cls(transform_job=spec.endpoint_name, instance=spec.instance_id)
        return cls(
            endpoint=spec.endpoint_name, variant=spec.variant_name, instance=spec.instance_id
        )

    def __str__(self) -> str:
        if self.training_job is not None:
            return f"training job {self.training_job}, {self.host}"
        if self.transform_job is not None:
            return f"transform job {self.transform_job}, instance {self.instance}"
        return f"endpoint {self.endpoint}, instance {self.instance}"


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a MIG device, which counts as one."""

    id: str
    """nvidia-smi's index, or a MIG device's UUID"""
    uuid: str
    name: str
    memory_mib: int | None
    """None if the driver does not say"""
    free: float
    """share that nobody holds, 0 to 1"""
    holders: tuple[GpuHolder, ...] = ()


class GpuList(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[GpuReport, ...] = ()
    problem: str | None = None
    """why the driver's GPUs cannot be listed"""
    uses_cpu: bool = False
    """whether instances of GPU types run on the CPU, for want of GPUs"""


def read_fraction(environment: Mapping[str, str]) -> Fraction | None:
    """Returns None if the variable is not set. Raises Invalid."""
    text = environment.get(FRACTION_VARIABLE, "").strip()
    if not text:
        return None
    if not _FRACTION.fullmatch(text) or not (fraction := Fraction(text)):
        raise Invalid(
            f"{FRACTION_VARIABLE} is {text[:40]!r}; it must be above 0 and at most 1, with at most "
            "three decimals, such as 0.25."
        )
    return fraction


def instance_fraction(environments: Sequence[Mapping[str, str]]) -> Fraction:
    """Returns the share of each GPU that the containers of an instance take together.

    A container without a fraction may use all of the instance's GPUs, so they are whole.

    Raises:
        Invalid: a fraction is malformed, or they add up to more than 1.
    """
    fractions = [read_fraction(environment) for environment in environments]
    if not fractions or any(fraction is None for fraction in fractions):
        return WHOLE
    total = sum(filter(None, fractions), Fraction(0))
    if total > WHOLE:
        raise Invalid(
            f"The {FRACTION_VARIABLE} of an instance's containers add up to {float(total):g}, but "
            "the containers share the instance's GPUs: at most 1."
        )
    return total
