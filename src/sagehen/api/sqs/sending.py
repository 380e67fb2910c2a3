"""SendMessage, SendMessageBatch."""

import uuid
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.message_attributes import (
    EmptyAttribute,
    attributes_size,
    is_text,
    read_attributes,
)
from sagehen.api.sqs.batches import batch_answer, check_batch, try_each
from sagehen.api.sqs.digests import md5_of_attributes, md5_of_body
from sagehen.api.sqs.refusals import bad_value, missing, out_of_range
from sagehen.api.sqs.urls import find_queue
from sagehen.domain.notices import MessageAttribute
from sagehen.domain.queues import MessageContent, NewMessage, QueueRecord
from sagehen.errors import Invalid
from sagehen.store import messages
from sagehen.wire.faults import AwsError

__all__ = ["send_message", "send_message_batch"]

LARGEST_BYTES = 2**20
"""Of a message with its attributes, and of a batch."""
LONGEST_DELAY = 900
MOST_ATTRIBUTES = 10
_TRACE = "AWSTraceHeader"


async def send_message(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Put a message into a queue; it is kept when this answers."""
    message = _message(params)

    def work(connection: Connection) -> None:
        queue = find_queue(call, connection, params)
        _check_size(queue, message)
        messages.send(connection, queue, [message], call.clock.now())

    await call.writes.join(work)
    return _answer(message)


async def send_message_batch(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Put up to ten messages into a queue; which of them could not be is told one by one."""

    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch("SendMessage", params["Entries"])
        made, failed = try_each(params["Entries"], _message)
        _check_batch_size(made.values())
        given = [{"Id": entry_id, "message": one} for entry_id, one in made.items()]
        fitting, larger = try_each(given, lambda one: _check_size(queue, one["message"]))
        if fitting:
            messages.send(connection, queue, list(fitting.values()), call.clock.now())
        answers = [{"Id": entry_id, **_answer(one)} for entry_id, one in fitting.items()]
        return batch_answer(answers, failed + larger)

    return await call.writes.join(work)


def _message(given: dict[str, Any]) -> NewMessage:
    body = given["MessageBody"]
    if not body:
        raise missing("MessageBody")
    if not is_text(body):
        raise AwsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            400,
        )
    delay = given.get("DelaySeconds")
    if delay is not None and not 0 <= delay <= LONGEST_DELAY:
        raise out_of_range("DelaySeconds", delay, 0, LONGEST_DELAY)
    if "MessageDeduplicationId" in given:
        raise bad_value("MessageDeduplicationId is for FIFO queues only.")
    trace = _attributes(given.get("MessageSystemAttributes", {})).get(_TRACE)
    content = MessageContent(
        attributes=_attributes(given.get("MessageAttributes", {})),
        trace_header=None if trace is None else trace.string_value,
    )
    return NewMessage(message_id=str(uuid.uuid4()), body=body, content=content, delay_seconds=delay)


def _attributes(given: dict[str, Any]) -> dict[str, MessageAttribute]:
    if len(given) > MOST_ATTRIBUTES:
        raise bad_value(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum "
            f"[{MOST_ATTRIBUTES}]."
        )
    try:
        return read_attributes(given)
    except EmptyAttribute as error:
        raise bad_value(
            f"Message (user) attribute '{error.name}' must contain a non-empty value of type "
            f"'{error.kind}'."
        ) from None
    except Invalid as error:
        raise bad_value(str(error)) from None


def _size(message: NewMessage) -> int:
    return len(message.body.encode()) + attributes_size(message.content.attributes)


def _check_batch_size(batch: Iterable[NewMessage]) -> None:
    size = sum(map(_size, batch))
    if size > LARGEST_BYTES:
        raise AwsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {LARGEST_BYTES} bytes. You have sent {size} "
            "bytes.",
            400,
        )


def _check_size(queue: QueueRecord, message: NewMessage) -> NewMessage:
    most = int(queue.attributes.get("MaximumMessageSize", LARGEST_BYTES))
    if _size(message) > most:
        raise bad_value(
            "One or more parameters are invalid. "
            f"Reason: Message must be shorter than {most} bytes."
        )
    return message


def _answer(message: NewMessage) -> dict[str, Any]:
    answer = {"MessageId": message.message_id, "MD5OfMessageBody": md5_of_body(message.body)}
    content = message.content
    if content.attributes:
        answer["MD5OfMessageAttributes"] = md5_of_attributes(content.attributes)
    if content.trace_header:
        trace = {_TRACE: MessageAttribute("String", content.trace_header)}
        answer["MD5OfMessageSystemAttributes"] = md5_of_attributes(trace)
    return answer
