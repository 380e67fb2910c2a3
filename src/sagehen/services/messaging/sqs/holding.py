"""Deletion and visibility changes of received messages, by receipt handle."""

import base64
import binascii
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.batches import batch_answer, check_batch, try_each
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs.errors import bad_parameter, missing, out_of_range
from sagehen.services.messaging.sqs.queue_store import find_queue
from sagehen.services.messaging.sqs.records import MAX_VISIBILITY_SECONDS, QueueMessage, QueueRecord
from sagehen.services.messaging.sqs.sending import batch_wording
from sagehen.wire.errors import AwsError

__all__ = [
    "Receipt",
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message",
    "delete_message_batch",
    "read_receipt",
    "write_receipt",
]


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    queue_id: str
    sequence: int
    token: str


def write_receipt(queue: QueueRecord, message: QueueMessage) -> str:
    receipt = Receipt(queue.queue_id, message.sequence, message.receipt)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(receipt)).decode()


def read_receipt(handle: str) -> Receipt:
    """Raises AwsError."""
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(handle), type=Receipt)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise AwsError(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{handle[:256]}" is not a valid receipt handle.',
            404,
        ) from None


async def delete_message(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    def work(connection: Connection) -> None:
        _delete(connection, find_queue(call, connection, params), params)

    await call.writes.join(work)
    return {}


async def delete_message_batch(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch(params["Entries"], batch_wording("DeleteMessage"))
        done, failed = try_each(params["Entries"], lambda entry: _delete(connection, queue, entry))
        return batch_answer([{"Id": entry_id} for entry_id in done], failed)

    return await call.writes.join(work)


async def change_message_visibility(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Hides a message for some seconds from now; 0 makes it visible."""

    def work(connection: Connection) -> None:
        _change(call, connection, find_queue(call, connection, params), params)

    await call.writes.join(work)
    return {}


async def change_message_visibility_batch(
    call: RequestContext, params: dict[str, Any]
) -> dict[str, Any]:
    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch(params["Entries"], batch_wording("ChangeMessageVisibility"))
        done, failed = try_each(
            params["Entries"], lambda entry: _change(call, connection, queue, entry)
        )
        return batch_answer([{"Id": entry_id} for entry_id in done], failed)

    return await call.writes.join(work)


def _delete(connection: Connection, queue: QueueRecord, entry: dict[str, Any]) -> None:
    receipt = read_receipt(entry["ReceiptHandle"])
    # A receipt is void once another receiver has the message.
    messages.remove(connection, queue, receipt.sequence, receipt.token)


def _change(
    call: RequestContext, connection: Connection, queue: QueueRecord, entry: dict[str, Any]
) -> None:
    receipt = read_receipt(entry["ReceiptHandle"])
    seconds = entry.get("VisibilityTimeout")
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= MAX_VISIBILITY_SECONDS:
        raise out_of_range("VisibilityTimeout", seconds, 0, MAX_VISIBILITY_SECONDS)
    now = call.clock.now()
    # An older handle will do, and so will a message that is visible again.
    if not messages.change_visibility(connection, queue, receipt.sequence, now + seconds, now):
        raise bad_parameter(
            "ReceiptHandle",
            entry["ReceiptHandle"],
            "Message does not exist or is not available for visibility timeout change.",
        )
