"""Measures what one instance uses, and counts how often it hit its limits."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from sagehen.agent.gpus.pool import GpuShare
from sagehen.agent.instances.limits import (
    InstanceLimit,
    LimitHits,
    Utilization,
    add_hits,
    choose_limits,
)
from sagehen.agent.instances.running import RunningContainer
from sagehen.agent.messages import Sample
from sagehen.agent.node import Node
from sagehen.frame.container_specs import InstanceSpec

__all__ = ["InstanceUsage"]

_FORKED, _ORDINARY = "forked", "ordinary"
_STARTS = (_FORKED, _ORDINARY)


class InstanceUsage:
    def __init__(self, spec: InstanceSpec, node: Node) -> None:
        self._spec = spec
        self._past_hits: Counter[InstanceLimit] = Counter()
        self._past_starts: Counter[str] = Counter()
        self._utilization = Utilization(
            choose_limits(spec.instance_type, node.settings), node.home.path, node.clock
        )

    async def samples(
        self,
        running: Sequence[RunningContainer],
        gpus: GpuShare | None,
        of_models: Mapping[str, float],
    ) -> list[Sample]:
        processes = [container.process for container in running]
        memory = sum(await asyncio.gather(*(process.memory_bytes() for process in processes)))
        seconds = sum(await asyncio.gather(*(process.cpu_seconds() for process in processes)))
        utilization = await asyncio.to_thread(self._utilization.read, memory, seconds)
        of_gpus = {} if gpus is None else gpus.utilization()
        values = {"InstanceMemoryBytes": memory, **utilization, **of_gpus, **of_models}
        hits = self._past_hits + Counter(_hits(running))
        starts = self._past_starts + _starts(running)
        return [
            *(self._sample(name, value) for name, value in values.items()),
            *(self._sample("InstanceLimitHits", hits[limit], limit) for limit in InstanceLimit),
            *(self._sample("ContainerStarts", starts[kind], kind) for kind in _STARTS),
        ]

    def keep_counts(self, ended: Sequence[RunningContainer]) -> None:
        """Adds the counts of containers that have ended to those of earlier ones."""
        self._past_hits.update(_hits(ended))
        self._past_starts.update(_starts(ended))

    def _sample(self, name: str, value: float, detail: str | None = None) -> Sample:
        return Sample(
            name=name,
            endpoint=self._spec.endpoint_name,
            variant=self._spec.variant_name,
            instance=self._spec.instance_id,
            value=value,
            detail=detail,
        )


def _starts(running: Sequence[RunningContainer]) -> Counter[str]:
    return Counter(_FORKED if each.process.is_forked else _ORDINARY for each in running)


def _hits(running: Sequence[RunningContainer]) -> LimitHits:
    return add_hits(container.process.hits() for container in running)
