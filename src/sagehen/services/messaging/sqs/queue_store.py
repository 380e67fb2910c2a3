"""Queues by their names; their messages are in `store.messages`.

The URLs of queues: `http://host:port/account/name`, whatever the host.
"""

import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection, bindparam, func, select, update

from sagehen.base.address import public_url
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs.errors import no_queue
from sagehen.services.messaging.sqs.records import QueueRecord
from sagehen.services.messaging.tables import EMPTIED_QUEUES, QUEUES
from sagehen.state import rows
from sagehen.wire.errors import AwsError

__all__ = [
    "all",
    "by_arn",
    "count",
    "delete",
    "find_queue",
    "get",
    "insert",
    "list_names",
    "purge",
    "queue_name",
    "queue_url",
    "set_attributes",
]

# Every send, receive and delete asks for a queue: put together once.
_GET = select(*[QUEUES.c[field] for field in QueueRecord.__struct_fields__]).where(
    QUEUES.c.name == bindparam("name")
)
_LOCK = _GET.with_for_update()


def insert(connection: Connection, record: QueueRecord) -> bool:
    """Add a queue; False where the name is taken."""
    return rows.insert_new(connection, QUEUES, record)


def get(connection: Connection, name: str, lock: bool = False) -> QueueRecord | None:
    """The queue of that name, which keeps its case; with `lock`, nobody else changes it."""
    row = connection.execute(_LOCK if lock else _GET, {"name": name}).one_or_none()
    return QueueRecord(**row._mapping) if row else None


def by_arn(connection: Connection, arn: str) -> QueueRecord | None:
    """The queue of that ARN. Callers see to it that it is of this account and region."""
    return get(connection, arn.rpartition(":")[2])


def all(connection: Connection) -> list[QueueRecord]:
    """Every queue, by name."""
    return rows.select_records(connection, QUEUES, QueueRecord, order=[QUEUES.c.name])


def count(connection: Connection) -> int:
    """How many queues there are."""
    return connection.scalar(select(func.count()).select_from(QUEUES)) or 0


def list_names(connection: Connection, prefix: str, after: str, limit: int) -> list[str]:
    """Names that begin with `prefix` and come behind `after`, sorted."""
    # Not LIKE: SQLite's does not tell case apart.
    begins = func.substr(QUEUES.c.name, 1, len(prefix)) == prefix
    wanted = begins & (QUEUES.c.name > after)
    statement = select(QUEUES.c.name).where(wanted).order_by(QUEUES.c.name).limit(limit)
    return list(connection.scalars(statement))


def set_attributes(
    connection: Connection, record: QueueRecord, attributes: dict[str, str], now: float
) -> None:
    """Replace the attributes that the owner set."""
    changed = msgspec.structs.replace(record, attributes=attributes, modified_at=now)
    rows.update_where(connection, QUEUES, changed, QUEUES.c.name == record.name)


def purge(connection: Connection, record: QueueRecord, now: float) -> None:
    """Let go of all messages; what they take is freed later, a few at a time."""
    _abandon(connection, record, now)
    statement = update(QUEUES).where(QUEUES.c.name == record.name)
    connection.execute(statement.values(queue_id=uuid.uuid4().hex))


def delete(connection: Connection, record: QueueRecord, now: float) -> None:
    """Drop a queue with its messages."""
    _abandon(connection, record, now)
    rows.delete_where(connection, QUEUES, QUEUES.c.name == record.name)


def _abandon(connection: Connection, record: QueueRecord, now: float) -> None:
    statement = EMPTIED_QUEUES.insert().values(queue_id=record.queue_id, emptied_at=now)
    connection.execute(statement)


def queue_url(call: RequestContext, name: str) -> str:
    """The URL of a queue of this server."""
    return f"{public_url(call.settings)}/{call.settings.account_id}/{name}"


def queue_name(params: dict[str, Any]) -> str:
    """The name that QueueUrl ends with."""
    return _path(params)[1]


def find_queue(
    call: RequestContext, connection: Connection, params: dict[str, Any], lock: bool = False
) -> QueueRecord:
    """The queue that QueueUrl names; raises AwsError where there is none."""
    account_id, name = _path(params)
    queue = get(connection, name, lock) if account_id == call.settings.account_id else None
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
