"""Which requests are taken out of the queue next: one transaction's reads and leases.

A leased request while it is worked on here.
"""

import asyncio
import logging
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
"""Of the right to dispatch; each request has a lease of its own."""

MOST_ENDED_AT_ONCE = 64
MOST_RECLAIMED_AT_ONCE = 10_000
"""More than one worker has at once; what is left over runs out."""


@dataclass
class Claimed:
    """What was leased in one turn."""

    to_send: list[QueuedRequest] = field(default_factory=list)
    to_end: list[QueuedRequest] = field(default_factory=list)
    """Too old, cancelled, or of an endpoint that is gone."""
    abandoned: dict[str, int] = field(default_factory=dict)
    """By endpoint name: up to which sequence requests are of one that is gone."""
    at: float = 0
    """Seconds since the epoch."""
    inputs: dict[int, SmallInput] = field(default_factory=dict)
    """By sequence: of what is to be sent, those that are small and near."""
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    """Requests that are worked on and are to end: sequences and attempts."""
    more: bool = False
    """There was more to end than was taken."""
    settled: bool = False
    """No request waits or is worked on: time alone brings nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What the dispatcher can take on now; called in a transaction.

    Args:
        free: by the names of the endpoints that serve: free slots.
        room: requests that may be taken on, of all endpoints together.
        first: which endpoint's turn it is to be the first, as a number that grows.
        until: of the leases.
        read: finds those inputs that are small and near.
        fresh: what this worker has leased by now was leased in an earlier life.
    """

    free: Mapping[str, int]
    room: int
    first: int
    worker: str
    now: float
    until: float
    read: Callable[[Connection, Sequence[QueuedRequest]], dict[int, SmallInput]]
    fresh: bool = False

    def __call__(self, connection: Connection) -> Claimed:
        """Lease what there is."""
        if self.fresh:
            async_leases.reclaim(connection, self.now, MOST_RECLAIMED_AT_ONCE, self.worker)
        claimed = Claimed(at=self.now, cancelled=async_leases.cancellations(connection))
        queues = async_requests.endpoint_queues(connection)
        claimed.abandoned = {one.endpoint_name: one.abandoned_to for one in queues}
        claimed.settled = not any(one.queued or one.leased or one.abandoned_to for one in queues)
        self._end_due(connection, claimed)
        for queue in queues:
            if queue != EndpointQueue(endpoint_name=queue.endpoint_name):
                self._end_abandoned(connection, queue, claimed)
        self._lease(connection, queues, claimed)
        return claimed

    def _end_due(self, connection: Connection, claimed: Claimed) -> None:
        limit = min(self.room, MOST_ENDED_AT_ONCE)
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
        limit = min(self.room, MOST_ENDED_AT_ONCE) - len(claimed.to_end)
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
        wants = {
            one.endpoint_name: min(one.queued, self.free.get(one.endpoint_name, 0))
            for one in queues
            if one.mode is not QueueMode.PAUSED
        }
        for name, limit in share(wants, self.room - len(claimed.to_end), self.first).items():
            claimed.to_send += async_leases.lease(
                connection, name, limit, self.worker, self.now, self.until
            )
        # A reading that fails is told when the request is sent: here it would stop all endpoints.
        found, error = attempt(
            connection, lambda connection: self.read(connection, claimed.to_send)
        )
        if error is not None:
            log.error("Inputs cannot be read with their leases.", exc_info=error)
        claimed.inputs = found or {}


def share(wants: Mapping[str, int], room: int, first: int) -> dict[str, int]:
    """How much of `room` each name gets: one by one in turn, from the `first` on, until all is
    shared out or nobody wants more."""
    names = [name for name, wanted in sorted(wants.items()) if wanted > 0]
    got = dict.fromkeys(names, 0)
    turn = first
    while names and room > 0:
        name = names[turn % len(names)]
        got[name] += 1
        room -= 1
        if got[name] == wants[name]:
            turn = names.index(name)
            names.remove(name)
        else:
            turn += 1
    return {name: count for name, count in got.items() if count}


def _is_gone(connection: Connection, name: str) -> bool:
    """There is no such endpoint, in this case of letters, or it is being deleted."""
    record = endpoints.get(connection, name)
    return record is None or record.name != name or record.status is EndpointStatus.DELETING


@dataclass(eq=False)
class LeasedRequest:
    """
    Args:
        lease_until: as far as is known here; nobody else has the request before.
        input: where it has been read already.
        verdict: why it is to be ended without being sent; None where it is to be sent.
        place: where it is sent.
        has_slot: it has a slot there.
        variant_name: what it is counted under.
    """

    queued: QueuedRequest
    lease_until: float
    input: SmallInput | None = None
    verdict: AsyncFailure | None = None
    place: RoutedContainer | None = None
    has_slot: bool = False
    variant_name: str | None = None
    asking: asyncio.Task[object] | None = None
    """While its container is asked: what a cancellation breaks off."""
    broken_off: AsyncFailure | None = None
    """Why it is to be asked no longer."""
    ends: bool = False
    """What comes of it is known, and is being written down."""
    is_lost: bool = False
    """Its lease was another's when it was to be renewed."""

    @property
    def held(self) -> tuple[int, int]:
        return self.queued.sequence, self.queued.attempt

    def break_off(self, why: AsyncFailure) -> None:
        """Nobody wants it any more. Whose answer is there already ends with that."""
        if self.broken_off is None:
            self.broken_off = why
            if self.asking is not None:
                self.asking.cancel()
