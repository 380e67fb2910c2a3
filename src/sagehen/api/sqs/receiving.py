"""ReceiveMessage: at once, or as soon as there is a message."""

import asyncio
import contextlib
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.sqs.attributes import check_attribute_names
from sagehen.api.sqs.receipts import write_receipt
from sagehen.api.sqs.received import describe_message
from sagehen.api.sqs.refusals import out_of_range
from sagehen.api.sqs.urls import find_queue, queue_name
from sagehen.domain.queues import QueueMessage, QueueRecord
from sagehen.errors import LimitExceeded
from sagehen.store import messages, queues
from sagehen.wire.faults import AwsError

__all__ = ["receive_message"]

MOST_MESSAGES = 10
LONGEST_WAIT = 20
LONGEST_VISIBILITY = 43_200
LEAST_REST_SECONDS = 0.02
"""What is due may be another's by then: it must not be asked for without end."""
_DEAD_AT_ONCE = 100


class _Taken(msgspec.Struct, frozen=True):
    queue: QueueRecord
    messages: list[QueueMessage]
    next_at: float | None
    """When there is the next to be taken; None where the queue has none."""


async def receive_message(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Up to ten messages, hidden from others for a while; no Messages key where there are none."""
    _check(params)
    taken = await _take(call, params)
    wait = params.get("WaitTimeSeconds", taken.queue.wait_seconds)
    if not taken.messages and wait > 0:
        try:
            taken = await _wait(call, params, call.clock.monotonic() + wait)
        except LimitExceeded as error:
            raise AwsError("RequestThrottled", str(error), 403) from None
    if not taken.messages:
        return {}
    # Off the event loop: what came from a topic is signed now.
    return {"Messages": await asyncio.to_thread(_tell_all, call, params, taken)}


async def _wait(call: Call, params: dict[str, Any], deadline: float) -> _Taken:
    """Take what comes until `deadline`, on the monotonic clock: the other one may be set."""
    name = queue_name(params)
    with call.arrivals.waiting(name) as come:
        while True:
            come.clear()
            taken = await _take(call, params)
            now = call.clock.now()
            if taken.next_at is not None and taken.next_at <= now:
                call.arrivals.wake_one(name)
            rest = deadline - call.clock.monotonic()
            if taken.messages or rest <= 0 or call.arrivals.closed:
                return taken
            if taken.next_at is not None:
                rest = min(rest, taken.next_at - now)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(come.wait(), max(rest, LEAST_REST_SECONDS))


async def _take(call: Call, params: dict[str, Any]) -> _Taken:
    def work(connection: Connection) -> _Taken:
        queue = find_queue(call, connection, params)
        for member in ("AttributeNames", "MessageSystemAttributeNames"):
            check_attribute_names(params.get(member, ()), of_messages=True)
        now = call.clock.now()
        most = _move_dead(call, connection, queue, now)
        visibility = params.get("VisibilityTimeout", queue.visibility_seconds)
        limit = params.get("MaxNumberOfMessages", 1)
        found = messages.receive(connection, queue, limit, visibility, now, most)
        return _Taken(queue, found, messages.next_visible(connection, queue, now))

    return await call.writes.join(work)


def _move_dead(call: Call, connection: Connection, queue: QueueRecord, now: float) -> int | None:
    """Move dead letters to where they belong; after how many receives one is dead."""
    policy = queue.dead_letters
    if policy is None:
        return None
    target = queues.by_arn(connection, policy.dead_letter_target_arn)
    if target is None:
        return None  # It was deleted: they stay where they are.
    most, source = int(policy.max_receive_count or 1), call.arns.sqs(queue.name)
    messages.take_exhausted(connection, queue, most, target, source, now, _DEAD_AT_ONCE)
    return most


def _tell_all(call: Call, params: dict[str, Any], taken: _Taken) -> list[dict[str, Any]]:
    return [
        describe_message(call, params, one, write_receipt(taken.queue, one))
        for one in taken.messages
    ]


def _check(params: dict[str, Any]) -> None:
    for name, least, most in (
        ("MaxNumberOfMessages", 1, MOST_MESSAGES),
        ("VisibilityTimeout", 0, LONGEST_VISIBILITY),
        ("WaitTimeSeconds", 0, LONGEST_WAIT),
    ):
        if name in params and not least <= params[name] <= most:
            raise out_of_range(name, params[name], least, most)
