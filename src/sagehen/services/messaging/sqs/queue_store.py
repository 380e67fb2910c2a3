"""SQL of queues, and queue URLs: `http://host:port/account/name` with any host."""

import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Double,
    String,
    Table,
    bindparam,
    func,
    select,
    update,
)

from sagehen.base.address import public_url
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs.errors import no_queue
from sagehen.services.messaging.sqs.records import QueueRecord
from sagehen.state import rows
from sagehen.state.rows import METADATA
from sagehen.wire.errors import AwsError

__all__ = [
    "EMPTIED_QUEUES",
    "QUEUES",
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
QUEUES = Table(
    "queues",
    METADATA,
    Column("name", String(80), primary_key=True),
    # Key of the messages; emptying changes it.
    Column("queue_id", String(32), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
)

# Queues whose messages are still to be deleted.
EMPTIED_QUEUES = Table(
    "emptied_queues",
    METADATA,
    Column("queue_id", String(32), primary_key=True),
    Column("emptied_at", Double, nullable=False),
)

# Built once, as most operations run it.
_GET = select(*[QUEUES.c[field] for field in QueueRecord.__struct_fields__]).where(
    QUEUES.c.name == bindparam("name")
)
_LOCK = _GET.with_for_update()


def insert(connection: Connection, record: QueueRecord) -> bool:
    """Returns False if the name is taken."""
    return rows.insert_new(connection, QUEUES, record)


def get(connection: Connection, name: str, lock: bool = False) -> QueueRecord | None:
    row = connection.execute(_LOCK if lock else _GET, {"name": name}).one_or_none()
    return QueueRecord(**row._mapping) if row else None


def by_arn(connection: Connection, arn: str) -> QueueRecord | None:
    """Callers check the ARN's account and region."""
    return get(connection, arn.rpartition(":")[2])


def all(connection: Connection) -> list[QueueRecord]:
    return rows.select_records(connection, QUEUES, QueueRecord, order=[QUEUES.c.name])


def count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(QUEUES)) or 0


def list_names(connection: Connection, prefix: str, after: str, limit: int) -> list[str]:
    # Not LIKE, which ignores case in SQLite.
    has_prefix = func.substr(QUEUES.c.name, 1, len(prefix)) == prefix
    where = has_prefix & (QUEUES.c.name > after)
    statement = select(QUEUES.c.name).where(where).order_by(QUEUES.c.name).limit(limit)
    return list(connection.scalars(statement))


def set_attributes(
    connection: Connection, record: QueueRecord, attributes: dict[str, str], now: float
) -> None:
    changed = msgspec.structs.replace(record, attributes=attributes, modified_at=now)
    rows.update_where(connection, QUEUES, changed, QUEUES.c.name == record.name)


def purge(connection: Connection, record: QueueRecord, now: float) -> None:
    """Detaches messages; `message_store.sweep` deletes them gradually."""
    _abandon(connection, record, now)
    statement = update(QUEUES).where(QUEUES.c.name == record.name)
    connection.execute(statement.values(queue_id=uuid.uuid4().hex))


def delete(connection: Connection, record: QueueRecord, now: float) -> None:
    _abandon(connection, record, now)
    rows.delete_where(connection, QUEUES, QUEUES.c.name == record.name)


def _abandon(connection: Connection, record: QueueRecord, now: float) -> None:
    statement = EMPTIED_QUEUES.insert().values(queue_id=record.queue_id, emptied_at=now)
    connection.execute(statement)


def queue_url(call: RequestContext, name: str) -> str:
    return f"{public_url(call.settings)}/{call.settings.account_id}/{name}"


def queue_name(params: dict[str, Any]) -> str:
    return _path(params)[1]


def find_queue(
    call: RequestContext, connection: Connection, params: dict[str, Any], lock: bool = False
) -> QueueRecord:
    """Raises AwsError."""
    account_id, name = _path(params)
    is_own = account_id in ("", call.settings.account_id)
    queue = get(connection, name, lock) if is_own else None
    if queue is None:
        raise no_queue()
    return queue


def _path(params: dict[str, Any]) -> tuple[str, str]:
    """Returns account and name; SQS takes a name alone for that of a queue of the caller."""
    try:
        url = urlsplit(params["QueueUrl"])
        parts = url.path.strip("/").split("/")
        if len(parts) == 1 and parts[0] and not url.netloc:
            return "", parts[0]
        return parts[-2], parts[-1]
    except (ValueError, IndexError):
        raise AwsError(
            "InvalidAddress",
            f"The address {params['QueueUrl'][:256]} is not valid for this endpoint.",
            404,
        ) from None
