"""ReceiveMessage, with long polling."""

import asyncio
import contextlib
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import LimitExceeded
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.errors import (
    NOT_OF_STANDARD_QUEUES,
    bad_parameter,
    out_of_range,
)
from sagehen.services.messaging.sqs.holding import write_receipt
from sagehen.services.messaging.sqs.queue_store import find_queue, queue_name
from sagehen.services.messaging.sqs.queues import check_attribute_names
from sagehen.services.messaging.sqs.records import MAX_VISIBILITY_SECONDS, QueueMessage, QueueRecord
from sagehen.services.messaging.sqs.sending import md5_of_attributes, md5_of_body
from sagehen.wire.errors import AwsError

__all__ = ["describe_message", "receive_message"]


def describe_message(
    call: RequestContext, params: dict[str, Any], message: QueueMessage, receipt: str
) -> dict[str, Any]:
    envelope = message.content.envelope
    body = message.body if envelope is None else call.seal(envelope)
    answer: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": receipt,
        "MD5OfBody": md5_of_body(body),
        "Body": body,
    }
    if system := _system_attributes(call, params, message):
        answer["Attributes"] = system
    if chosen := _chosen(params.get("MessageAttributeNames", ()), message.content.attributes):
        answer["MessageAttributes"] = {
            name: _attribute(attribute) for name, attribute in chosen.items()
        }
        answer["MD5OfMessageAttributes"] = md5_of_attributes(chosen)
    return answer


def _system_attributes(
    call: RequestContext, params: dict[str, Any], message: QueueMessage
) -> dict[str, str]:
    # AttributeNames is the older name.
    requested = {*params.get("AttributeNames", ()), *params.get("MessageSystemAttributeNames", ())}
    if not requested:
        return {}
    known = {
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at),
        "ApproximateReceiveCount": str(message.receives + message.content.earlier_receives),
        "SenderId": call.settings.account_id,
        "SentTimestamp": _milliseconds(message.sent_at),
        "AWSTraceHeader": message.content.trace_header,
        "DeadLetterQueueSourceArn": message.content.source_arn,
        "MessageGroupId": message.content.group_id,
    }
    return {
        name: value
        for name, value in known.items()
        if value is not None and (name in requested or "All" in requested)
    }


def _chosen(
    requested: list[str], attributes: dict[str, MessageAttribute]
) -> dict[str, MessageAttribute]:
    """Selects by name, by prefix as in `bar.*`, or all by `All` or `.*`."""
    if "All" in requested or ".*" in requested:
        return attributes
    beginnings = tuple(
        pattern.removesuffix("*").removesuffix(".")
        for pattern in requested
        if pattern.endswith("*")
    )
    return {
        name: attribute
        for name, attribute in attributes.items()
        if name in requested or (beginnings and name.startswith(beginnings))
    }


def _attribute(attribute: MessageAttribute) -> dict[str, Any]:
    if attribute.binary_value is not None:
        return {"DataType": attribute.data_type, "BinaryValue": attribute.binary_value}
    return {"DataType": attribute.data_type, "StringValue": attribute.string_value}


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


MAX_MESSAGES = 10
MAX_WAIT_SECONDS = 20
MIN_REST_SECONDS = 0.02
"""prevents spinning when another receiver has taken the due message"""
_DEAD_AT_ONCE = 100


class _Received(msgspec.Struct, frozen=True):
    queue: QueueRecord
    messages: list[QueueMessage]
    next_at: float | None
    """None if the queue is empty"""


async def receive_message(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An empty answer has no Messages key."""
    _check(params)
    received = await _take(call, params)
    wait = params.get("WaitTimeSeconds", received.queue.wait_seconds)
    if not received.messages and wait > 0:
        try:
            received = await _wait(call, params, call.clock.monotonic() + wait)
        except LimitExceeded as error:
            raise AwsError("RequestThrottled", str(error), 403) from None
    if not received.messages:
        return {}
    # Off the event loop: topics' messages are signed now.
    return {"Messages": await asyncio.to_thread(_describe_all, call, params, received)}


async def _wait(call: RequestContext, params: dict[str, Any], deadline: float) -> _Received:
    """`deadline` is monotonic seconds: the wall clock may be set."""
    name = queue_name(params)
    with call.arrivals.waiting(name) as arrived:
        while True:
            arrived.clear()
            received = await _take(call, params)
            now = call.clock.now()
            if received.next_at is not None and received.next_at <= now:
                call.arrivals.wake_one(name)
            rest = deadline - call.clock.monotonic()
            if received.messages or rest <= 0 or call.arrivals.closed:
                return received
            if received.next_at is not None:
                rest = min(rest, received.next_at - now)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(arrived.wait(), max(rest, MIN_REST_SECONDS))


async def _take(call: RequestContext, params: dict[str, Any]) -> _Received:
    def work(connection: Connection) -> _Received:
        queue = find_queue(call, connection, params)
        for member in ("AttributeNames", "MessageSystemAttributeNames"):
            check_attribute_names(params.get(member, ()), of_messages=True)
        now = call.clock.now()
        max_receives = _move_dead(call, connection, queue, now)
        visibility = params.get("VisibilityTimeout", queue.visibility_seconds)
        limit = params.get("MaxNumberOfMessages", 1)
        received = messages.receive(connection, queue, limit, visibility, now, max_receives)
        return _Received(queue, received, messages.next_visible(connection, queue, now))

    return await call.writes.join(work)


def _move_dead(
    call: RequestContext, connection: Connection, queue: QueueRecord, now: float
) -> int | None:
    """Returns after how many receives a message is dead."""
    policy = queue.dead_letters
    if policy is None:
        return None
    target = queues.by_arn(connection, policy.dead_letter_target_arn)
    if target is None:
        return None  # the dead-letter queue was deleted
    max_receives, source = int(policy.max_receive_count or 1), call.arns.sqs(queue.name)
    messages.take_exhausted(connection, queue, max_receives, target, source, now, _DEAD_AT_ONCE)
    return max_receives


def _describe_all(
    call: RequestContext, params: dict[str, Any], received: _Received
) -> list[dict[str, Any]]:
    return [
        describe_message(call, params, message, write_receipt(received.queue, message))
        for message in received.messages
    ]


def _check(params: dict[str, Any]) -> None:
    if attempt := params.get("ReceiveRequestAttemptId"):
        raise bad_parameter("ReceiveRequestAttemptId", attempt, NOT_OF_STANDARD_QUEUES)
    for name, minimum, maximum in (
        ("MaxNumberOfMessages", 1, MAX_MESSAGES),
        ("VisibilityTimeout", 0, MAX_VISIBILITY_SECONDS),
        ("WaitTimeSeconds", 0, MAX_WAIT_SECONDS),
    ):
        if name in params and not minimum <= params[name] <= maximum:
            raise out_of_range(name, params[name], minimum, maximum)
