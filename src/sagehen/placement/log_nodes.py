"""Asks the agents of a cluster's nodes about logs, for a control that leads or stands by."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.routing import Route

from sagehen.base.concurrency import in_thread
from sagehen.base.errors import Invalid, SagehenError
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.placement import store
from sagehen.placement.records import NodeRecord
from sagehen.placement.watched_node import NodeAgent, WatchedNode
from sagehen.services.monitoring.logs.cluster import NodeAnswers
from sagehen.services.monitoring.logs.node_requests import NodeAnswer, NodeRequest
from sagehen.services.monitoring.logs.tail import TailRequest
from sagehen.state.database import Database

__all__ = ["ClusterLogs"]

ANSWER_SECONDS = 10.0
SILENT_ANSWER_SECONDS = 1.0
"""of a node that the leader has not seen when it last looked"""


class ClusterLogs:
    """Args:
    nodes: those that this control watches; empty while it stands by.
    connect: makes the client of a node's agent, for a control of the given epoch.
    """

    def __init__(
        self,
        database: Database,
        nodes: Callable[[], Sequence[WatchedNode]],
        connect: Callable[[NodeRecord, int], NodeAgent],
    ) -> None:
        self._database = database
        self._nodes = nodes
        self._connect = connect
        self.routes: list[Route] = [own_route("/_sagehen/logs", {"POST": self._tail})]

    async def ask(self, request: NodeRequest, node_id: str | None = None) -> NodeAnswers:
        """Asks all nodes, or one."""
        body = msgspec.json.encode(request)
        watched = [node for node in self._nodes() if node_id in (None, node.node_id)]
        if watched:
            answers = await asyncio.gather(*(self._ask_watched(node, body) for node in watched))
            names = [node.node_id for node in watched]
        else:
            records = await in_thread(self._read)
            epoch = max((record.epoch for record in records), default=0)
            seen_at = max((record.seen_at for record in records), default=0.0)
            asked = [record for record in records if node_id in (None, record.node_id)]
            answers = await asyncio.gather(
                *(self._ask_once(each, epoch, body, each.seen_at >= seen_at) for each in asked)
            )
            names = [record.node_id for record in asked]
        found = dict(zip(names, answers, strict=True))
        return NodeAnswers(
            {name: answer for name, answer in found.items() if answer is not None},
            tuple(name for name, answer in found.items() if answer is None),
        )

    async def _ask_watched(self, node: WatchedNode, body: bytes) -> NodeAnswer | None:
        if not node.is_alive:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return _decode(await node.call(node.agent.read_logs(body)))
        except (SagehenError, TimeoutError):
            return None

    async def _ask_once(
        self, record: NodeRecord, epoch: int, body: bytes, is_seen: bool
    ) -> NodeAnswer | None:
        agent = self._connect(record, epoch)
        try:
            async with asyncio.timeout(ANSWER_SECONDS if is_seen else SILENT_ANSWER_SECONDS):
                return _decode(await agent.read_logs(body))
        except (SagehenError, TimeoutError):
            return None
        finally:
            agent.close()

    def _read(self) -> list[NodeRecord]:
        with self._database.read() as connection:
            return store.list_nodes(connection)

    async def _tail(self, request: OwnPathRequest) -> dict[str, Any]:
        """Answers `sagehen logs`: `{"request": …, "positions": {node: {log: position}}}`."""
        try:
            asked = msgspec.json.decode(request.body, type=_TailRequest)
        except ValueError as error:
            raise Invalid(f"This is no request for logs: {error}") from error
        if asked.positions is None:
            answers = await self.ask(_node_request(asked.request, None))
        else:
            answers = await self._ask_each(asked)
        return {
            "nodes": {name: answer.result for name, answer in answers.by_node.items()},
            "missing": answers.missing,
        }

    async def _ask_each(self, asked: "_TailRequest") -> NodeAnswers:
        """A node that is new since the last request is asked for everything it has."""
        known = asked.positions or {}
        records = await in_thread(self._read)
        answers = await asyncio.gather(
            *(
                self.ask(
                    _node_request(asked.request, known.get(record.node_id, {})), record.node_id
                )
                for record in records
            )
        )
        return NodeAnswers(
            {name: answer for each in answers for name, answer in each.by_node.items()},
            tuple(name for each in answers for name in each.missing),
        )


class _TailRequest(msgspec.Struct, frozen=True, kw_only=True):
    request: TailRequest
    positions: dict[str, dict[str, int]] | None = None


def _node_request(request: TailRequest, positions: dict[str, int] | None) -> NodeRequest:
    own = msgspec.structs.replace(request, positions=positions)
    return NodeRequest(kind="tail", params=msgspec.to_builtins(own))


def _decode(body: bytes) -> NodeAnswer | None:
    try:
        return msgspec.json.decode(body, type=NodeAnswer)
    except ValueError:
        return None  # of another version
