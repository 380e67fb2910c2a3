"""SendMessage, SendMessageBatch and batch helpers.

MD5 digests follow SQS's developer guide (sqs-message-metadata, "Calculating the MD5 message digest
for message attributes").
"""

import hashlib
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.message_attributes import (
    EmptyAttribute,
    attributes_size,
    is_text,
    read_attributes,
)
from sagehen.services.messaging.sns.records import MessageAttribute
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs.errors import bad_value, missing, out_of_range
from sagehen.services.messaging.sqs.queue_store import find_queue
from sagehen.services.messaging.sqs.records import MessageContent, NewMessage, QueueRecord
from sagehen.wire.errors import AwsError

__all__ = [
    "batch_answer",
    "check_batch",
    "md5_of_attributes",
    "md5_of_body",
    "send_message",
    "send_message_batch",
    "try_each",
]

_STRING, _BINARY = b"\x01", b"\x02"


def md5_of_body(body: str) -> str:
    return _md5(body.encode())


def md5_of_attributes(attributes: Mapping[str, MessageAttribute]) -> str:
    parts: list[bytes] = []
    for name, one in sorted(attributes.items()):
        value, kind = one.binary_value, _BINARY
        if value is None:
            value, kind = (one.string_value or "").encode(), _STRING
        parts += [_sized(name.encode()), _sized(one.data_type.encode()), kind, _sized(value)]
    return _md5(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


T = TypeVar("T")

MOST_ENTRIES = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_batch(operation: str, entries: list[dict[str, Any]]) -> None:
    """Raises AwsError. `operation` is such as `SendMessage`."""
    if not entries:
        raise AwsError(
            "EmptyBatchRequest",
            f"There should be at least one {operation}BatchRequestEntry in the request.",
            400,
        )
    if len(entries) > MOST_ENTRIES:
        raise AwsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST_ENTRIES}. You have sent "
            f"{len(entries)}.",
            400,
        )
    ids = [entry["Id"] for entry in entries]
    if not all(_ENTRY_ID.fullmatch(one) for one in ids):
        raise AwsError(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
            400,
        )
    for one in ids:
        if ids.count(one) > 1:
            raise AwsError("BatchEntryIdsNotDistinct", f"Id {one} repeated.", 400)


def try_each(
    entries: list[dict[str, Any]], work: Callable[[dict[str, Any]], T]
) -> tuple[dict[str, T], list[dict[str, Any]]]:
    """Returns results by Id, and entries that raised AwsError."""
    done: dict[str, T] = {}
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            done[entry["Id"]] = work(entry)
        except AwsError as error:
            failed.append(_failed(entry["Id"], error))
    return done, failed


def batch_answer(successful: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """Includes empty lists, as clients expect."""
    return {"Successful": successful, "Failed": failed}


def _failed(entry_id: str, error: AwsError) -> dict[str, Any]:
    return {"Id": entry_id, "Code": error.code, "Message": error.message, "SenderFault": True}


LARGEST_BYTES = 2**20
"""with attributes; also of a batch"""
LONGEST_DELAY = 900
MOST_ATTRIBUTES = 10
_TRACE = "AWSTraceHeader"


async def send_message(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The message is on disk when this returns."""
    message = _message(params)

    def work(connection: Connection) -> None:
        queue = find_queue(call, connection, params)
        _check_size(queue, message)
        messages.send(connection, queue, [message], call.clock.now())

    await call.writes.join(work)
    return _answer(message)


async def send_message_batch(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
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
