"""Questions to all nodes of a cluster at once. Nodes that do not answer are left out."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from sagehen.agent.messages import JobSample, Sample
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.frame.gpus import GpuList
from sagehen.frame.nodes import NodeDescription
from sagehen.placement.watched_node import NodeAgent, WatchedNode

__all__ = ["NodeQuestions"]

T = TypeVar("T")

ANSWER_SECONDS = 2.0
"""less than those wait who ask here: one node that hangs must not hide the others"""


class NodeQuestions:
    """Args:
    nodes: returns the nodes; None while another control leads.
    """

    def __init__(self, nodes: Callable[[], Sequence[WatchedNode] | None]) -> None:
        self._all_nodes = nodes
        self.other_problems: Callable[[], Sequence[str]] = lambda: ()
        """returns what does not work besides the nodes, each with the remedy"""

    @property
    def reached(self) -> dict[str, str]:
        """Returns the addresses of the agents that answer, by node id."""
        return {
            node.node_id: node.record.agent_address
            for node in self._all_nodes() or ()
            if node.heartbeat.is_alive
        }

    async def job_samples(self) -> list[JobSample]:
        return [each for _, found in await self._ask(_job_samples) for each in found]

    async def metrics(self) -> list[Sample]:
        return [each for _, found in await self._ask(_metrics) for each in found]

    async def problems(self) -> list[str]:
        """Returns what nodes cannot do now, each with the remedy."""
        found = await self._ask(_problems)
        told = [f"Node {node_id}: {each}" for node_id, problems in found for each in problems]
        return [*told, *map(_silent, self.silent_nodes()), *self.other_problems()]

    def silent_nodes(self) -> list[str]:
        """Returns the nodes that do not answer."""
        return [node.node_id for node in self._all_nodes() or () if not node.is_alive]

    async def missing_walls(self) -> list[str]:
        found = await self._ask(_missing_walls)
        return list(dict.fromkeys(each for _, walls in found for each in walls))

    async def gpus(self) -> GpuList:
        lists = [found for _, found in await self._ask(_gpus)]
        problem = next((each.problem for each in lists if each.problem), None)
        return GpuList(
            gpus=tuple(gpu for each in lists for gpu in each.gpus),
            problem=problem,
            uses_cpu=bool(lists) and all(each.uses_cpu for each in lists),
        )

    async def descriptions(self) -> dict[str, NodeDescription]:
        """Returns the nodes that answer, by id."""
        return dict(await self._ask(_describe))

    async def check_health(self) -> None:
        """Raises Unavailable where no node answers."""
        nodes = self._all_nodes()
        if nodes is not None and not any(node.is_alive for node in nodes):
            raise Unavailable("No node of the cluster answers.")

    async def _ask(
        self, question: Callable[[NodeAgent], Coroutine[Any, Any, T]]
    ) -> list[tuple[str, T]]:
        alive = [node for node in self._all_nodes() or () if node.is_alive]
        answers = await asyncio.gather(
            *(_within(ANSWER_SECONDS, node.call(question(node.agent))) for node in alive),
            return_exceptions=True,
        )
        found = []
        for node, answer in zip(alive, answers, strict=True):
            if not isinstance(answer, BaseException):
                found.append((node.node_id, answer))
            elif not isinstance(answer, SagehenError | TimeoutError):
                raise answer
        return found


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(seconds):
        return await work


def _silent(node_id: str) -> str:
    return (
        f"Node {node_id}: It does not answer, so its instances run elsewhere, and its logs are not "
        "shown. Start it again; `sagehen cluster status` lists the nodes."
    )


async def _job_samples(agent: NodeAgent) -> list[JobSample]:
    return await agent.job_samples()


async def _metrics(agent: NodeAgent) -> list[Sample]:
    return await agent.metrics()


async def _problems(agent: NodeAgent) -> list[str]:
    return await agent.problems()


async def _missing_walls(agent: NodeAgent) -> list[str]:
    return await agent.missing_walls()


async def _gpus(agent: NodeAgent) -> GpuList:
    return await agent.gpus()


async def _describe(agent: NodeAgent) -> NodeDescription:
    return await agent.describe()
