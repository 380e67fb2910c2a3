"""The URLs of queues: `http://host:port/account/name`, whatever the host."""

from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection

from sagehen.address import public_url
from sagehen.api.call import Call
from sagehen.api.sqs.refusals import no_queue
from sagehen.domain.queues import QueueRecord
from sagehen.store import queues
from sagehen.wire.faults import AwsError

__all__ = ["find_queue", "queue_name", "queue_url"]


def queue_url(call: Call, name: str) -> str:
    """The URL of a queue of this server."""
    return f"{public_url(call.settings)}/{call.settings.account_id}/{name}"


def queue_name(params: dict[str, Any]) -> str:
    """The name that QueueUrl ends with."""
    return _path(params)[1]


def find_queue(
    call: Call, connection: Connection, params: dict[str, Any], lock: bool = False
) -> QueueRecord:
    """The queue that QueueUrl names; raises AwsError where there is none."""
    account_id, name = _path(params)
    queue = queues.get(connection, name, lock) if account_id == call.settings.account_id else None
    if queue is None:
        raise no_queue()
    return queue


def _path(params: dict[str, Any]) -> tuple[str, str]:
    try:
        parts = urlsplit(params["QueueUrl"]).path.strip("/").split("/")
        return parts[-2], parts[-1]
    except (ValueError, IndexError):
        raise AwsError(
            "InvalidAddress",
            f"The address {params['QueueUrl'][:256]} is not valid for this endpoint.",
            404,
        ) from None
