"""How much an instance uses of what it may, in percent, by SageMaker's names of it."""

import shutil
from pathlib import Path

from sagehen.agent.limits import Limits
from sagehen.agent.memory import machine_memory_bytes
from sagehen.clock import Clock

__all__ = ["Utilization"]

SHORTEST_SECONDS = 0.5
"""Who asks again sooner is told the same of the processor."""


class Utilization:
    """Of one instance. The processor's is what was used since it was last asked for."""

    def __init__(self, limits: Limits, home: Path, clock: Clock) -> None:
        self._memory_bytes = limits.memory_bytes or machine_memory_bytes()
        self._home = home
        self._clock = clock
        self._since = clock.monotonic()
        self._cpu_seconds = 0.0
        self._cpu_percent = 0.0

    def read(self, memory_bytes: int, cpu_seconds: float) -> dict[str, float]:
        """All three. Looks at the disk.

        Args:
            cpu_seconds: what the containers there are have used since they began, of all cores.
        """
        disk = shutil.disk_usage(self._home)
        return {
            "CPUUtilization": self._cpu(cpu_seconds),
            "MemoryUtilization": 100 * memory_bytes / self._memory_bytes,
            "DiskUtilization": 100 * disk.used / disk.total,
        }

    def _cpu(self, cpu_seconds: float) -> float:
        """100 is one core; less than there was is a container that began anew."""
        now = self._clock.monotonic()
        if now - self._since >= SHORTEST_SECONDS:
            used = cpu_seconds - self._cpu_seconds
            used = cpu_seconds if used < 0 else used
            self._cpu_percent = 100 * used / (now - self._since)
            self._since, self._cpu_seconds = now, cpu_seconds
        return self._cpu_percent
