"""Chooses and leases the next requests of all queues, in one transaction."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.dispatch.failures import AsyncFailure
from sagehen.services.sagemaker.async_inference.dispatch.inputs import SmallInput
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer
from sagehen.services.sagemaker.async_inference.records import (
    EndpointQueue,
    QueuedRequest,
    QueueMode,
)
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state.group_commit import attempt

__all__ = ["LEASE_NAME", "Claimed", "Claims", "LeasedRequest", "share"]

log = logging.getLogger(__name__)

LEASE_NAME = "dispatch"
"""The lease on dispatching; each request has a lease of its own."""

MAX_ENDED_AT_ONCE = 64
MAX_RECLAIMED_AT_ONCE = 10_000
"""More leases than one worker has."""


@dataclass
class Claimed:
    """The requests leased in one turn."""

    to_send: list[QueuedRequest] = field(default_factory=list)
    to_end: list[QueuedRequest] = field(default_factory=list)
    """Expired, cancelled, or of a deleted endpoint."""
    abandoned: dict[str, int] = field(default_factory=dict)
    """By endpoint: requests up to this sequence belong to a deleted endpoint."""
    at: float = 0
    """seconds since the epoch"""
    inputs: dict[int, SmallInput] = field(default_factory=dict)
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    more: bool = False
    settled: bool = False
    """Nothing to do until something is committed."""

    @property
    def has_changes(self) -> bool:
        return bool(self.to_send or self.to_end or any(self.abandoned.values()))


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Leases what the dispatcher can take on now; called in a transaction.

    Args:
        free: slots by endpoint name.
        first: a growing number that rotates which endpoint comes first.
        fresh: this worker has just taken the lease on dispatching, so all leases of requests are of
            workers that have ended or lost it.
        check: raises LeaseLost if the lease on dispatching is another's.
    """

    free: Mapping[str, int]
    capacity: int
    first: int
    worker: str
    now: float
    until: float
    read: Callable[[Connection, Sequence[QueuedRequest]], dict[int, SmallInput]]
    fresh: bool = False
    check: Callable[[Connection], None] = lambda connection: None

    def __call__(self, connection: Connection) -> Claimed:
        if self.fresh:
            async_leases.reclaim(connection, math.inf, MAX_RECLAIMED_AT_ONCE)
        claimed = Claimed(at=self.now, cancelled=async_leases.cancellations(connection))
        queues = async_requests.endpoint_queues(connection)
        claimed.abandoned = {queue.endpoint_name: queue.abandoned_to for queue in queues}
        claimed.settled = not any(
            queue.queued or queue.leased or queue.abandoned_to for queue in queues
        )
        self._end_due(connection, claimed)
        for queue in queues:
            if queue != EndpointQueue(endpoint_name=queue.endpoint_name):
                self._end_abandoned(connection, queue, claimed)
        self._lease(connection, queues, claimed)
        if self.fresh or claimed.has_changes:
            # Else nothing was written; the check is a write, which would wake all loops.
            self.check(connection)
        return claimed

    def _end_due(self, connection: Connection, claimed: Claimed) -> None:
        limit = min(self.capacity, MAX_ENDED_AT_ONCE)
        due = async_leases.lease_due(connection, limit, self.worker, self.now, self.until)
        claimed.to_end += due
        claimed.more = len(due) == limit

    def _end_abandoned(
        self, connection: Connection, queue: EndpointQueue, claimed: Claimed
    ) -> None:
        name, up_to = queue.endpoint_name, queue.abandoned_to
        is_gone = name not in self.free and _is_gone(connection, name)
        if is_gone:
            async_requests.abandon(connection, name)
            up_to = async_requests.endpoint_queue(connection, name).abandoned_to
            claimed.abandoned[name] = up_to
        limit = min(self.capacity, MAX_ENDED_AT_ONCE) - len(claimed.to_end)
        if up_to and limit > 0:
            left = async_leases.lease_abandoned(
                connection, name, up_to, limit, self.worker, self.until
            )
            claimed.to_end += left
            claimed.more |= len(left) == limit
            if not left and not is_gone:
                async_requests.take_up(connection, name)

    def _lease(
        self, connection: Connection, queues: Sequence[EndpointQueue], claimed: Claimed
    ) -> None:
        demand = {
            queue.endpoint_name: min(queue.queued, self.free.get(queue.endpoint_name, 0))
            for queue in queues
            if queue.mode is not QueueMode.PAUSED
        }
        for name, limit in share(demand, self.capacity - len(claimed.to_end), self.first).items():
            claimed.to_send += async_leases.lease(
                connection, name, limit, self.worker, self.now, self.until
            )
        # The error is reported when the request is sent; raising here would stop all endpoints.
        inputs, error = attempt(
            connection, lambda connection: self.read(connection, claimed.to_send)
        )
        if error is not None:
            log.error("Inputs cannot be read with their leases.", exc_info=error)
        claimed.inputs = inputs or {}


def share(demand: Mapping[str, int], capacity: int, first: int) -> dict[str, int]:
    """Share `capacity` among the names round-robin, beginning with number `first`."""
    names = [name for name, count in sorted(demand.items()) if count > 0]
    shares = dict.fromkeys(names, 0)
    turn = first
    while names and capacity > 0:
        name = names[turn % len(names)]
        shares[name] += 1
        capacity -= 1
        if shares[name] == demand[name]:
            turn = names.index(name)
            names.remove(name)
        else:
            turn += 1
    return {name: count for name, count in shares.items() if count}


def _is_gone(connection: Connection, name: str) -> bool:
    record = endpoints.get(connection, name)
    return record is None or record.name != name or record.status is EndpointStatus.DELETING


@dataclass(eq=False)
class LeasedRequest:
    """A request that this worker has leased.

    Args:
        lease_until: no other worker has the request before then.
        verdict: why to end the request without sending it.
    """

    queued: QueuedRequest
    lease_until: float
    input: SmallInput | None = None
    early_failure: AsyncFailure | None = None
    container: RoutedContainer | None = None
    has_slot: bool = False
    variant_name: str | None = None
    invocation: asyncio.Task[object] | None = None
    broken_off: AsyncFailure | None = None
    ends: bool = False
    """The outcome is known and being written."""
    is_lost: bool = False
    """The lease was not renewed: another worker has it, or the request has just ended."""

    @property
    def held(self) -> tuple[int, int]:
        return self.queued.sequence, self.queued.attempt

    def break_off(self, failure: AsyncFailure) -> None:
        """Stops asking the container. An answer that has already arrived still counts."""
        if self.broken_off is None:
            self.broken_off = failure
            if self.invocation is not None:
                self.invocation.cancel()
