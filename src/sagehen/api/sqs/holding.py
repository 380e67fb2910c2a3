"""What a receiver does with a message it holds: delete it, or change for how long it is hidden."""

from typing import Any

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.sqs.batches import batch_answer, check_batch, try_each
from sagehen.api.sqs.receipts import read_receipt
from sagehen.api.sqs.refusals import missing, out_of_range
from sagehen.api.sqs.urls import find_queue
from sagehen.domain.queues import QueueRecord
from sagehen.store import messages
from sagehen.wire.faults import AwsError

__all__ = [
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message",
    "delete_message_batch",
]

LONGEST_VISIBILITY = 43_200


async def delete_message(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Delete a message that was received; one that is gone already is well."""

    def work(connection: Connection) -> None:
        _delete(connection, find_queue(call, connection, params), params)

    await call.writes.join(work)
    return {}


async def delete_message_batch(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Delete up to ten messages; which of them could not be is told one by one."""

    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch("DeleteMessage", params["Entries"])
        done, failed = try_each(params["Entries"], lambda entry: _delete(connection, queue, entry))
        return batch_answer([{"Id": one} for one in done], failed)

    return await call.writes.join(work)


async def change_message_visibility(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Hide a received message for so many seconds from now; 0 gives it back."""

    def work(connection: Connection) -> None:
        _change(call, connection, find_queue(call, connection, params), params)

    await call.writes.join(work)
    return {}


async def change_message_visibility_batch(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The same for up to ten messages."""

    def work(connection: Connection) -> dict[str, Any]:
        queue = find_queue(call, connection, params)
        check_batch("ChangeMessageVisibility", params["Entries"])
        done, failed = try_each(
            params["Entries"], lambda entry: _change(call, connection, queue, entry)
        )
        return batch_answer([{"Id": one} for one in done], failed)

    return await call.writes.join(work)


def _delete(connection: Connection, queue: QueueRecord, given: dict[str, Any]) -> None:
    receipt = read_receipt(given["ReceiptHandle"])
    # Who holds it no longer deletes nothing: another has received it since.
    messages.remove(connection, queue, receipt.sequence, receipt.token)


def _change(call: Call, connection: Connection, queue: QueueRecord, given: dict[str, Any]) -> None:
    receipt = read_receipt(given["ReceiptHandle"])
    seconds = given.get("VisibilityTimeout")
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= LONGEST_VISIBILITY:
        raise out_of_range("VisibilityTimeout", seconds, 0, LONGEST_VISIBILITY)
    now = call.clock.now()
    if not messages.change_visibility(
        connection, queue, receipt.sequence, receipt.token, now + seconds, now
    ):
        raise AwsError(
            "MessageNotInflight",
            "The message referred to isn't in flight.",
            400,
        )
