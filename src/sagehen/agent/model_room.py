"""How much a multi-model container may hold, and how many models it may load at once."""

import os

from sagehen.agent.memory import machine_memory_bytes
from sagehen.agent.model_cache import ModelCache, ModelCachePlan
from sagehen.agent.model_calls import ModelCalls
from sagehen.agent.node import Node
from sagehen.agent.running import RunningContainer
from sagehen.agent.tallies import ModelTallies
from sagehen.domain.instance_types import instance_types
from sagehen.domain.locations import parse_location
from sagehen.errors import Invalid

__all__ = ["ROOM_VARIABLE", "choose_room", "open_model_cache"]

ROOM_VARIABLE = "SAGEHEN_MODEL_CACHE_BYTES"
"""In a container's Environment: the most that its models together may be booked with."""
LEAST_LOADS_AT_ONCE = 2
FETCHES_PER_LOAD = 4
ONE_SHOT_FACTOR = 4
"""Without model cache more is loaded at once: each model is used for one moment only."""


async def open_model_cache(
    running: RunningContainer, node: Node, tallies: ModelTallies, sharing: int = 1
) -> ModelCache:
    """The cache of a container that has just become healthy and holds no model yet.

    `sharing`: so many containers of the instance hold models, each an equal part of the memory.

    Raises:
        Invalid: its model data URL, or the room it asks for, makes no sense.
    """
    container = running.place.container
    base = await running.process.memory_bytes()
    given = container.environment.get(ROOM_VARIABLE)
    loads = max(LEAST_LOADS_AT_ONCE, os.cpu_count() or 1)
    if not container.model_cache:
        loads *= ONE_SHOT_FACTOR
    plan = ModelCachePlan(
        container_number=running.place.number,
        prefix=parse_location(container.model_data_url or ""),
        folder=running.place.base / "models",
        room_bytes=_parse_room(given)
        if given is not None
        else choose_room(
            running.place.spec.instance_type, node.settings.model_memory_share / sharing, base
        ),
        base_bytes=base,
        loads_at_once=loads,
        fetches_at_once=loads * FETCHES_PER_LOAD,
        longest_load_seconds=node.settings.model_load_timeout_seconds,
        keep=container.model_cache,
    )
    return ModelCache(
        plan,
        ModelCalls(running.address),
        node.artifacts,
        running.process.memory_bytes,
        tallies,
        node.clock,
    )


def choose_room(instance_type: str, share: float, base_bytes: int) -> int:
    """A share of the instance type's memory, less what the container takes without a model.

    Where this machine has less than the type it stands in for, the machine's memory counts.
    """
    machine = machine_memory_bytes()
    known = instance_types().get(instance_type)
    memory = min(known.memory_bytes, machine) if known else machine
    return max(0, int(memory * share) - base_bytes)


def _parse_room(given: str) -> int:
    if not given.isdecimal():
        raise Invalid(f"{ROOM_VARIABLE} must be a number of bytes, but it is {given[:40]!r}.")
    return int(given)
