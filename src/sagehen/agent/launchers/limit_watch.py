"""Enforces instance limits by polling, where cgroups do not."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.instances.process_tree import measure_tree, tree_memory_bytes
from sagehen.base.clock import Clock

__all__ = ["LimitWatch", "UsageReading", "Watched", "choose_pause", "look"]

log = logging.getLogger(__name__)

SHORTEST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
GROWTH_BYTES_PER_SECOND = 4 * 2**30
"""as fast as a few cores fill memory"""
PAUSE_PER_LOOK = 20
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
    room_bytes: int
    """0 if there may soon be too many processes"""


@dataclass
class _Instance:
    limits: Limits
    containers: list[Watched] = field(default_factory=list)


class LimitWatch:
    """Ends the largest container of an instance that exceeds a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._instances: dict[str, _Instance] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, instance_id: str, container: Watched, limits: Limits) -> None:
        """Watches a container until it has ended."""
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = _Instance(limits)
            task = asyncio.create_task(self._look_after(instance_id, instance))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        instance.limits = limits
        instance.containers.append(container)

    async def _look_after(self, instance_id: str, instance: _Instance) -> None:
        while containers := [one for one in instance.containers if not one.has_ended]:
            instance.containers = containers
            started = self._clock.monotonic()
            try:
                room = await self._look_once(containers, instance.limits)
            except Exception:
                # For example, a container has used up all threads.
                log.exception("An instance was not looked at.", extra={"instance": instance_id})
                room = 0
            took = self._clock.monotonic() - started
            await self._clock.sleep(choose_pause(room, took))
        del self._instances[instance_id]

    async def _look_once(self, containers: Sequence[Watched], limits: Limits) -> int:
        seen = await asyncio.to_thread(look, [one.pid for one in containers], limits)
        if seen.excess is not None:
            largest = max(range(len(containers)), key=seen.sizes.__getitem__)
            containers[largest].end_for(seen.excess, limits)
        return seen.room_bytes


def look(pids: Sequence[int], limits: Limits) -> UsageReading:
    """Measures processes with descendants. Blocks for milliseconds."""
    trees = [measure_tree(pid) for pid in pids]
    tasks = [tree.tasks for tree in trees]
    memory = [tree.resident_bytes for tree in trees]
    if limits.processes is not None and sum(tasks) > limits.processes:
        return UsageReading(InstanceLimit.PROCESSES, tasks, 0)
    if limits.processes is not None and sum(tasks) * 2 > limits.processes:
        most_room = 0  # may double in no time
    else:
        most_room = GROWTH_BYTES_PER_SECOND
    if limits.memory_bytes is None:
        return UsageReading(None, memory, most_room)
    if sum(memory) > limits.memory_bytes:
        # Exact but slower: shared pages were counted several times.
        memory = [tree_memory_bytes(pid) for pid in pids]
    room = limits.memory_bytes - sum(memory)
    return UsageReading(InstanceLimit.MEMORY if room < 0 else None, memory, min(room, most_room))


def choose_pause(room_bytes: int, look_seconds: float) -> float:
    until_full = room_bytes / GROWTH_BYTES_PER_SECOND
    bounded = min(max(until_full, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
    return max(bounded, look_seconds * PAUSE_PER_LOOK)
