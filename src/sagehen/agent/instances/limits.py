"""An instance's resource limits, hits of limits, and utilization."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.agent.instances.process_tree import machine_memory_bytes
from sagehen.base.clock import Clock
from sagehen.frame.instance_types import find_instance_type

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = [
    "NO_LIMITS",
    "InstanceLimit",
    "LimitHits",
    "Limits",
    "Utilization",
    "add_hits",
    "choose_limits",
    "describe_hit",
]


class InstanceLimit(StrEnum):
    """The limits of docs/reference/limits.md."""

    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"
    LOG = "log"


LimitHits = dict[InstanceLimit, int]
_INSTANCE_WIDE = (InstanceLimit.PROCESSES, InstanceLimit.CPU)
"""reported by each container for the whole instance"""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Shared by all containers of an instance; None is no limit."""

    memory_bytes: int | None = None
    processes: int | None = None
    """including threads"""
    cpus: int | None = None
    vcpus: int | None = None
    """sets the share of a busy machine"""


NO_LIMITS = Limits()


def choose_limits(instance_type: str, settings: "Settings") -> Limits:
    """The instance type's limits, at most this machine's memory and CPUs."""
    if not settings.instance_limits:
        return NO_LIMITS
    known = find_instance_type(instance_type)
    machine = machine_memory_bytes()
    memory = settings.instance_memory_bytes or (known.memory_bytes if known else machine)
    vcpus = known.vcpus if known else None
    return Limits(
        memory_bytes=min(memory, machine),
        processes=settings.max_instance_processes,
        cpus=vcpus if vcpus and vcpus < len(os.sched_getaffinity(0)) else None,
        vcpus=vcpus,
    )


def add_hits(hits: Iterable[LimitHits]) -> LimitHits:
    """Adds the hits of containers that ran at the same time."""
    total: Counter[InstanceLimit] = Counter()
    for container_hits in hits:
        for limit, count in container_hits.items():
            shared = limit in _INSTANCE_WIDE
            total[limit] = max(total[limit], count) if shared else total[limit] + count
    return dict(total)


def describe_hit(limit: InstanceLimit, limits: Limits) -> str:
    if limit is InstanceLimit.MEMORY:
        mebibytes = (limits.memory_bytes or 0) >> 20
        return f"it was ended because it passed the {mebibytes} MiB of memory of its instance"
    return (
        f"it was ended because it passed the {limits.processes} processes and threads that an "
        "instance may have (setting max_instance_processes)"
    )


MIN_INTERVAL_SECONDS = 0.5
"""shortest interval of CPU measurements"""


class Utilization:
    """Utilization of one instance, in percent; CPU since the last reading."""

    def __init__(self, limits: Limits, home: Path, clock: Clock) -> None:
        self._memory_bytes = limits.memory_bytes or machine_memory_bytes()
        self._home = home
        self._clock = clock
        self._since = clock.monotonic()
        self._cpu_seconds = 0.0
        self._cpu_percent = 0.0

    def read(self, memory_bytes: int, cpu_seconds: float) -> dict[str, float]:
        """Blocks: reads the disk's usage.

        Args:
            cpu_seconds: of the present containers since their start, over all cores.
        """
        disk = shutil.disk_usage(self._home)
        return {
            "CPUUtilization": self._cpu(cpu_seconds),
            "MemoryUtilization": 100 * memory_bytes / self._memory_bytes,
            "DiskUtilization": 100 * disk.used / disk.total,
        }

    def _cpu(self, cpu_seconds: float) -> float:
        """Percent of one core; `cpu_seconds` falls when a container is restarted."""
        now = self._clock.monotonic()
        if now - self._since >= MIN_INTERVAL_SECONDS:
            seconds = cpu_seconds - self._cpu_seconds
            seconds = cpu_seconds if seconds < 0 else seconds
            self._cpu_percent = 100 * seconds / (now - self._since)
            self._since, self._cpu_seconds = now, cpu_seconds
        return self._cpu_percent
