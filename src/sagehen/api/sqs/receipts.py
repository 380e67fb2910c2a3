"""Receipt handles: which message it is, and which of its receivers holds it."""

import base64
import binascii

import msgspec

from sagehen.domain.queues import QueueMessage, QueueRecord
from sagehen.wire.faults import AwsError

__all__ = ["Receipt", "read_receipt", "write_receipt"]


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    queue_id: str
    sequence: int
    token: str


def write_receipt(queue: QueueRecord, message: QueueMessage) -> str:
    receipt = Receipt(queue.queue_id, message.sequence, message.receipt)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(receipt)).decode()


def read_receipt(handle: str) -> Receipt:
    """Raises AwsError where it is none that was given out."""
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(handle), type=Receipt)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise AwsError(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{handle[:256]}" is not a valid receipt handle.',
            404,
        ) from None
