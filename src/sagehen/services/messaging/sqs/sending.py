"""SendMessage and SendMessageBatch.

MD5 digests follow SQS's developer guide (sqs-message-metadata, "Calculating the MD5 message digest
for message attributes").
"""

import hashlib
import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.batches import (
    MAX_ENTRIES,
    MAX_ID_LENGTH,
    BatchWording,
    batch_answer,
    check_batch,
    try_each,
)
from sagehen.services.messaging.message_attributes import (
    EmptyAttributeError,
    MessageAttribute,
    attributes_size,
    is_text,
    read_attributes,
    read_group_id,
)
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs.errors import (
    NOT_OF_STANDARD_QUEUES,
    bad_parameter,
    bad_value,
    missing,
    out_of_range,
)
from sagehen.services.messaging.sqs.queue_store import find_queue
from sagehen.services.messaging.sqs.records import MessageContent, NewMessage, QueueRecord
from sagehen.wire.errors import AwsError

__all__ = [
    "batch_wording",
    "md5_of_attributes",
    "md5_of_body",
    "send_message",
    "send_message_batch",
]

_STRING, _BINARY = b"\x01", b"\x02"


def md5_of_body(body: str) -> str:
    return _md5(body.encode())


def md5_of_attributes(attributes: Mapping[str, MessageAttribute]) -> str:
    parts: list[bytes] = []
    for name, attribute in sorted(attributes.items()):
        value, kind = attribute.binary_value, _BINARY
        if value is None:
            value, kind = (attribute.string_value or "").encode(), _STRING
        parts += [_sized(name.encode()), _sized(attribute.data_type.encode()), kind, _sized(value)]
    return _md5(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def batch_wording(operation: str) -> BatchWording:
    """`operation` is such as `SendMessage`."""
    return BatchWording(
        empty=f"There should be at least one {operation}BatchRequestEntry in the request.",
        too_many=lambda count: (
            f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {count}."
        ),
        bad_id=lambda _: (
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            f"It can be at most {MAX_ID_LENGTH} letters long."
        ),
        repeated_id=lambda entry_id: f"Id {entry_id} repeated.",
    )


MAX_MESSAGE_BYTES = 2**20
"""with attributes; also of a batch"""
MAX_DELAY_SECONDS = 900
MAX_ATTRIBUTES = 10
_TRACE = "AWSTraceHeader"


async def send_message(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The message is on disk when this returns."""
    message = _message(call, params)

    def work(connection: Connection) -> None:
        queue = find_queue(call, connection, params)
        _check_size(queue, message)
        messages.send(connection, queue, [message], call.clock.now())

    await call.writes.join(work)
    return _answer(message, params)


async def send_message_batch(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch(params["Entries"], batch_wording("SendMessage"))
        valid, failed = try_each(params["Entries"], lambda entry: _message(call, entry))
        _check_batch_size(valid.values())
        entries = [{"Id": entry_id, "message": message} for entry_id, message in valid.items()]
        fitting, too_large = try_each(
            entries, lambda entry: _check_size(queue, entry["message"], "cannot be validated")
        )
        if fitting:
            messages.send(connection, queue, list(fitting.values()), call.clock.now())
        answers = [
            {"Id": entry["Id"], **_answer(fitting[entry["Id"]], entry)}
            for entry in params["Entries"]
            if entry["Id"] in fitting
        ]
        return batch_answer(answers, failed + too_large)

    return await call.writes.join(work)


def _message(call: RequestContext, entry: dict[str, Any]) -> NewMessage:
    body = entry["MessageBody"]
    if not body:
        raise missing("MessageBody")
    if not is_text(body):
        raise AwsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            400,
        )
    delay = entry.get("DelaySeconds")
    if delay is not None and not 0 <= delay <= MAX_DELAY_SECONDS:
        raise out_of_range("DelaySeconds", delay, 0, MAX_DELAY_SECONDS)
    if "MessageDeduplicationId" in entry:
        raise bad_parameter(
            "MessageDeduplicationId", entry["MessageDeduplicationId"], NOT_OF_STANDARD_QUEUES
        )
    trace = _attributes(entry.get("MessageSystemAttributes", {})).get(_TRACE)
    content = MessageContent(
        attributes=_attributes(entry.get("MessageAttributes", {})),
        trace_header=call.trace_header if trace is None else trace.string_value,
        group_id=_group_id(entry),
    )
    return NewMessage(message_id=str(uuid.uuid4()), body=body, content=content, delay_seconds=delay)


def _group_id(entry: dict[str, Any]) -> str | None:
    try:
        return read_group_id(entry.get("MessageGroupId"))
    except Invalid as error:
        raise bad_parameter("MessageGroupId", entry["MessageGroupId"], str(error)) from None


def _attributes(attributes: dict[str, Any]) -> dict[str, MessageAttribute]:
    if len(attributes) > MAX_ATTRIBUTES:
        raise bad_value(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{MAX_ATTRIBUTES}]."
        )
    try:
        return read_attributes(attributes)
    except EmptyAttributeError as error:
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
    if size > MAX_MESSAGE_BYTES:
        raise AwsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. You have sent {size} "
            "bytes.",
            400,
        )


def _check_size(
    queue: QueueRecord, message: NewMessage, problem: str = "are invalid"
) -> NewMessage:
    max_size = int(queue.attributes.get("MaximumMessageSize", MAX_MESSAGE_BYTES))
    if _size(message) > max_size:
        raise bad_value(
            f"One or more parameters {problem}. "
            f"Reason: Message must be shorter than {max_size} bytes."
        )
    return message


def _answer(message: NewMessage, entry: dict[str, Any]) -> dict[str, Any]:
    answer = {"MessageId": message.message_id, "MD5OfMessageBody": md5_of_body(message.body)}
    content = message.content
    if content.attributes:
        answer["MD5OfMessageAttributes"] = md5_of_attributes(content.attributes)
    if content.trace_header and entry.get("MessageSystemAttributes"):
        trace = {_TRACE: MessageAttribute("String", content.trace_header)}
        answer["MD5OfMessageSystemAttributes"] = md5_of_attributes(trace)
    return answer
