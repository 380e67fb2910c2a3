"""Deletes old requests that ended, and the queues of deleted endpoints."""

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.frame.leased_loop import keep_sweeping
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.state.group_commit import GroupCommit

__all__ = ["Sweeps"]

SWEEP_SECONDS = 30.0
DELETE_BATCH = 500
"""Few: the transaction is short."""


class Sweeps:
    """Forgets requests `history_seconds` after their end."""

    def __init__(self, writes: GroupCommit, clock: Clock, history_seconds: float) -> None:
        self._writes = writes
        self._clock = clock
        self._history_seconds = history_seconds

    async def run(self) -> None:
        await keep_sweeping(self.sweep, SWEEP_SECONDS, self._clock, "queue of requests")

    async def sweep(self) -> int:
        before = self._clock.now() - self._history_seconds
        forgotten, last = 0, DELETE_BATCH
        while last == DELETE_BATCH:
            last = await self._writes.join(
                lambda connection: async_requests.forget(connection, before, DELETE_BATCH)
            )
            forgotten += last
        await self._writes.join(_drop_endpoints)
        return forgotten


def _drop_endpoints(connection: Connection) -> None:
    for queue in async_requests.endpoint_queues(connection):
        is_empty = not queue.queued and not queue.leased
        if is_empty and endpoints.get(connection, queue.endpoint_name) is None:
            async_requests.drop_endpoint(connection, queue.endpoint_name)
