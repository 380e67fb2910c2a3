"""Enforces instance limits by polling, where cgroups do not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.instances.process_tree import measure_tree, tree_memory_bytes
from sagehen.base.clock import Clock

__all__ = ["LimitWatch", "UsageReading", "Watched", "choose_pause", "measure"]

log = logging.getLogger(__name__)

MIN_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 1.0
GROWTH_BYTES_PER_SECOND = 4 * 2**30
"""as fast as a few cores fill memory"""
PAUSE_PER_MEASUREMENT = 20
"""times as long as the look took: a measured process cannot map memory"""


class Watched(Protocol):
    """A started container."""

    @property
    def pid(self) -> int: ...

    @property
    def has_ended(self) -> bool: ...

    def end_for(self, limit: InstanceLimit, limits: Limits) -> None: ...


@dataclass(frozen=True)
class UsageReading:
    """One reading of an instance's containers."""

    excess: InstanceLimit | None
    sizes: Sequence[int]
    """of the excess, or of memory"""
    headroom_bytes: int
    """0 if there may soon be too many processes"""


@dataclass
class _Instance:
    limits: Limits
    containers: list[Watched] = field(default_factory=list)


ReadUsage = Callable[[Sequence[Any], Limits], Awaitable[UsageReading]]


class LimitWatch:
    """Ends the largest container of an instance that exceeds a limit."""

    def __init__(self, clock: Clock, read_usage: "ReadUsage | None" = None) -> None:
        self._clock = clock
        self._read_usage = read_usage or _read_processes
        self._instances: dict[str, _Instance] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, instance_id: str, container: Watched, limits: Limits) -> None:
        """Watches a container until it has ended."""
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = _Instance(limits)
            task = asyncio.create_task(self._watch(instance_id, instance))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        instance.limits = limits
        instance.containers.append(container)

    async def _watch(self, instance_id: str, instance: _Instance) -> None:
        while containers := [
            container for container in instance.containers if not container.has_ended
        ]:
            instance.containers = containers
            started = self._clock.monotonic()
            try:
                headroom = await self._check(containers, instance.limits)
            except Exception:
                # For example, a container has used up all threads.
                log.exception(
                    "The limits of an instance could not be checked.",
                    extra={"instance": instance_id},
                )
                headroom = 0
            seconds = self._clock.monotonic() - started
            await self._clock.sleep(choose_pause(headroom, seconds))
        del self._instances[instance_id]

    async def _check(self, containers: Sequence[Watched], limits: Limits) -> int:
        reading = await self._read_usage(containers, limits)
        if reading.excess is not None:
            largest = max(range(len(containers)), key=reading.sizes.__getitem__)
            containers[largest].end_for(reading.excess, limits)
        return reading.headroom_bytes


async def _read_processes(containers: Sequence[Watched], limits: Limits) -> UsageReading:
    return await asyncio.to_thread(measure, [container.pid for container in containers], limits)


def measure(pids: Sequence[int], limits: Limits) -> UsageReading:
    """Measures processes with descendants. Blocks for milliseconds."""
    trees = [measure_tree(pid) for pid in pids]
    tasks = [tree.tasks for tree in trees]
    memory = [tree.resident_bytes for tree in trees]
    if limits.processes is not None and sum(tasks) > limits.processes:
        return UsageReading(InstanceLimit.PROCESSES, tasks, 0)
    if limits.processes is not None and sum(tasks) * 2 > limits.processes:
        max_headroom = 0  # may double in no time
    else:
        max_headroom = GROWTH_BYTES_PER_SECOND
    if limits.memory_bytes is None:
        return UsageReading(None, memory, max_headroom)
    if sum(memory) > limits.memory_bytes:
        # Exact but slower: shared pages were counted several times.
        memory = [tree_memory_bytes(pid) for pid in pids]
    headroom = limits.memory_bytes - sum(memory)
    return UsageReading(
        InstanceLimit.MEMORY if headroom < 0 else None, memory, min(headroom, max_headroom)
    )


def choose_pause(headroom_bytes: int, measure_seconds: float) -> float:
    until_full = headroom_bytes / GROWTH_BYTES_PER_SECOND
    bounded = min(max(until_full, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
    return max(bounded, measure_seconds * PAUSE_PER_MEASUREMENT)
