"""The limits of an instance with several containers: the engine knows limits of one container."""

import asyncio
from collections.abc import Sequence

from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.launchers.docker.container import DockerContainer
from sagehen.agent.launchers.limit_watch import GROWTH_BYTES_PER_SECOND, UsageReading

__all__ = ["read_pipeline"]


async def read_pipeline(containers: Sequence[DockerContainer], limits: Limits) -> UsageReading:
    """Reads what all containers of an instance use together, for LimitWatch."""
    memory = await asyncio.gather(*(each.memory_bytes() for each in containers))
    processes = await asyncio.gather(*(each.count_processes() for each in containers))
    if limits.processes is not None and sum(processes) > limits.processes:
        return UsageReading(InstanceLimit.PROCESSES, processes, 0)
    if limits.memory_bytes is None:
        return UsageReading(None, memory, GROWTH_BYTES_PER_SECOND)
    headroom = limits.memory_bytes - sum(memory)
    excess = InstanceLimit.MEMORY if headroom < 0 else None
    return UsageReading(excess, memory, min(headroom, GROWTH_BYTES_PER_SECOND))
