"""Requests to nodes that nobody waits for."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.placement.watched_node import WatchedNode

__all__ = ["BackgroundRequests"]

log = logging.getLogger(__name__)


class BackgroundRequests:
    """If one fails, the next look at the nodes shows what is still to be asked."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._deleting: set[tuple[str, str]] = set()
        """node and instance: copies that are being deleted"""

    def start(self, node: WatchedNode, request: Coroutine[Any, Any, None]) -> None:
        """Sends a request to run something; its reconciler asks again, as nobody reports it."""
        self._spawn(self._start(node, request))

    def delete_copy(self, node: WatchedNode, instance_id: str) -> None:
        """Deletes an instance that runs on another node, too."""
        if (node.node_id, instance_id) not in self._deleting:
            self._deleting.add((node.node_id, instance_id))
            self._spawn(self._delete_copy(node, instance_id))

    async def _start(self, node: WatchedNode, request: Coroutine[Any, Any, None]) -> None:
        try:
            await request
        except SagehenError as error:
            about = {"action": "ask_agent", "node": node.node_id, "reason": str(error)}
            log.warning("A node did not take what it was asked.", extra=about)

    async def _delete_copy(self, node: WatchedNode, instance_id: str) -> None:
        about = {"action": "delete_copy", "instance": instance_id, "node": node.node_id}
        log.info("An instance runs on another node, too, and is deleted here.", extra=about)
        try:
            await node.call(node.agent.delete_instance(instance_id))
        except SagehenError as error:
            log.warning("A copy could not be deleted: %s", error, extra=about)
        finally:
            self._deleting.discard((node.node_id, instance_id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
