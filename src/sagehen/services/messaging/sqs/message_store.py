"""SQL of queue messages."""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)

from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.queue_store import EMPTIED_QUEUES
from sagehen.services.messaging.sqs.records import (
    MAX_VISIBILITY_SECONDS,
    MessageContent,
    NewMessage,
    QueueMessage,
    QueueRecord,
)
from sagehen.state.database import notify
from sagehen.state.rows import METADATA, SEQUENCE

__all__ = [
    "MESSAGES",
    "MESSAGES_SENT",
    "bound_waits",
    "change_visibility",
    "counts",
    "next_visible",
    "put_message",
    "receive",
    "remove",
    "send",
    "sweep",
    "take_exhausted",
]
MESSAGES = Table(
    "queue_messages",
    METADATA,
    Column("sequence", SEQUENCE, primary_key=True),
    Column("queue_id", String(32), nullable=False),
    Column("message_id", String(36), nullable=False),
    Column("body", Text, nullable=False),
    # JSON: data besides the body, or a notice's envelope in its place.
    Column("content", LargeBinary),
    Column("sent_at", Double, nullable=False),
    Column("visible_at", Double, nullable=False),
    Column("receives", Integer, nullable=False),
    Column("first_received_at", Double),
    Column("receipt", String(32)),
    # Seconds from the write to `visible_at`.
    Column("hidden_seconds", Double),
    Index("ix_queue_messages_visible", "queue_id", "visible_at"),
    Index("ix_queue_messages_sent", "queue_id", "sent_at"),
    sqlite_autoincrement=True,
)

MESSAGES_SENT = "messages"
"""database notification channel; its messages are queue names"""

_M = MESSAGES.c
_NEVER_RECEIVED = {"first_received_at": None, "receipt": None, "hidden_seconds": 0.0}
_CLOCK_SLACK_SECONDS = 2.0
"""smaller differences come from clock adjustment"""
_KEEP_EMPTIED_SECONDS = 3600.0
"""a sender may still use the old id"""


def send(connection: Connection, queue: QueueRecord, new: Sequence[NewMessage], now: float) -> None:
    connection.execute(insert(MESSAGES), [_row(queue, message, now) for message in new])
    notify(connection, MESSAGES_SENT, queue.name)


def put_message(connection: Connection, queue_arn: str, message: NewMessage, now: float) -> bool:
    """Returns False if the queue is gone."""
    queue = queues.by_arn(connection, queue_arn)
    if queue is None:
        return False
    send(connection, queue, [message], now)
    return True


def receive(
    connection: Connection,
    queue: QueueRecord,
    limit: int,
    visibility_seconds: float,
    now: float,
    most_receives: int | None = None,
) -> list[QueueMessage]:
    """Takes messages and hides them for `visibility_seconds`.

    Args:
        most_receives: messages received this often are skipped.
    """
    where = _visible(queue, now)
    if most_receives is not None:
        where = and_(where, _M.receives < most_receives)
    statement = _in_order(select(MESSAGES).where(where), limit)
    received = [_received(row, now) for row in connection.execute(statement)]
    for message in received:
        connection.execute(
            update(MESSAGES)
            .where(_M.sequence == message.sequence)
            .values(
                visible_at=now + visibility_seconds,
                hidden_seconds=visibility_seconds,
                receives=message.receives,
                first_received_at=message.first_received_at,
                receipt=message.receipt,
            )
        )
    return received


def take_exhausted(
    connection: Connection,
    queue: QueueRecord,
    most_receives: int,
    target: QueueRecord,
    source_arn: str,
    now: float,
    limit: int,
) -> int:
    """Moves messages received `most_receives` times to the dead-letter queue; returns how many.

    Ids and sending times stay. Looks at the first `limit` messages only, to bound the cost.
    """
    first = select(_M.sequence, _M.content, _M.receives).where(_visible(queue, now))
    exhausted = connection.execute(_in_order(first, limit)).all()
    spent = [row for row in exhausted if row.receives >= most_receives]
    anew = {"queue_id": target.queue_id, "visible_at": now, "receives": 0, **_NEVER_RECEIVED}
    for sequence, stored, receives in spent:
        content = _content(stored)
        moved_content = msgspec.structs.replace(
            content, source_arn=source_arn, earlier_receives=content.earlier_receives + receives
        )
        moved = update(MESSAGES).where(_M.sequence == sequence)
        connection.execute(moved.values(content=msgspec.json.encode(moved_content), **anew))
    if spent:
        notify(connection, MESSAGES_SENT, target.name)
    return len(spent)


def remove(connection: Connection, queue: QueueRecord, sequence: int, receipt: str) -> bool:
    """Returns False if the receipt is void."""
    where = _held(queue, sequence, receipt)
    return connection.execute(delete(MESSAGES).where(where)).rowcount > 0


def change_visibility(
    connection: Connection,
    queue: QueueRecord,
    sequence: int,
    visible_at: float,
    now: float,
) -> bool:
    """Returns False if the message is gone."""
    where = and_(_M.sequence == sequence, _M.queue_id == queue.queue_id, _not_expired(queue, now))
    values = {"visible_at": visible_at, "hidden_seconds": visible_at - now}
    changed = connection.execute(update(MESSAGES).where(where).values(**values))
    if changed.rowcount and visible_at <= now:
        notify(connection, MESSAGES_SENT, queue.name)
    return changed.rowcount > 0


def bound_waits(connection: Connection, queues: Sequence[QueueRecord], now: float) -> int:
    """Shortens hiding that exceeds its recorded time; returns how many.

    Messages are hidden too long when the clock is set back.
    """
    bounded = 0
    hidden = func.coalesce(_M.hidden_seconds, MAX_VISIBILITY_SECONDS)
    for queue in queues:
        # Uses the index: only hidden messages are read.
        too_long = and_(
            _M.queue_id == queue.queue_id,
            _M.visible_at > now,
            _M.visible_at > now + hidden + _CLOCK_SLACK_SECONDS,
        )
        changed = update(MESSAGES).where(too_long).values(visible_at=now + hidden)
        count = connection.execute(changed).rowcount
        if count:
            notify(connection, MESSAGES_SENT, queue.name)
        bounded += count
    return bounded


def next_visible(connection: Connection, queue: QueueRecord, now: float) -> float | None:
    """Returns None if the queue is empty."""
    # ORDER BY uses the index; for min(), SQLite reads all kept messages.
    where = and_(_M.queue_id == queue.queue_id, _not_expired(queue, now))
    statement = select(_M.visible_at).where(where).order_by(_M.visible_at).limit(1)
    earliest: float | None = connection.scalar(statement)
    return earliest


def counts(connection: Connection, queue: QueueRecord, now: float) -> tuple[int, int, int]:
    """Returns numbers of visible, received and delayed messages."""
    in_queue = _M.queue_id == queue.queue_id

    def number(*where: ColumnElement[bool]) -> int:
        return connection.scalar(select(func.count()).where(in_queue, *where)) or 0

    hidden = _M.visible_at > now
    delayed = number(hidden, _M.receives == 0)
    return number(_M.visible_at <= now), number(hidden) - delayed, delayed


def sweep(connection: Connection, queues: Sequence[QueueRecord], now: float, limit: int) -> int:
    """Deletes expired messages and those of emptied queues; returns how many.

    `limit` is per queue.
    """
    count = 0
    for queue in queues:
        old = and_(_M.queue_id == queue.queue_id, _M.sent_at <= now - queue.retention_seconds)
        count += _delete_some(connection, old, limit)
    for queue_id, emptied_at in connection.execute(select(EMPTIED_QUEUES)).all():
        some = _delete_some(connection, _M.queue_id == queue_id, limit)
        if some == 0 and emptied_at + _KEEP_EMPTIED_SECONDS <= now:
            connection.execute(delete(EMPTIED_QUEUES).where(EMPTIED_QUEUES.c.queue_id == queue_id))
        count += some
    return count


def _delete_some(connection: Connection, where: ColumnElement[bool], limit: int) -> int:
    some = select(_M.sequence).where(where).limit(limit)
    return connection.execute(delete(MESSAGES).where(_M.sequence.in_(some))).rowcount


def _visible(queue: QueueRecord, now: float) -> ColumnElement[bool]:
    return and_(_M.queue_id == queue.queue_id, _M.visible_at <= now, _not_expired(queue, now))


def _not_expired(queue: QueueRecord, now: float) -> ColumnElement[bool]:
    # `+ 0.0` avoids the index on sent_at, which would read all messages; that on visible_at finds
    # the first at once.
    return _M.sent_at + 0.0 > now - queue.retention_seconds


def _in_order(statement: Select[Any], limit: int) -> Select[Any]:
    """Skips messages locked by others."""
    ordered = statement.order_by(_M.visible_at, _M.sequence)
    return ordered.limit(limit).with_for_update(skip_locked=True)


def _held(queue: QueueRecord, sequence: int, receipt: str) -> ColumnElement[bool]:
    return and_(_M.sequence == sequence, _M.queue_id == queue.queue_id, _M.receipt == receipt)


def _row(queue: QueueRecord, new: NewMessage, now: float) -> dict[str, Any]:
    delay = queue.delay_seconds if new.delay_seconds is None else new.delay_seconds
    plain = new.content == MessageContent()
    return {
        "queue_id": queue.queue_id,
        "message_id": new.message_id,
        "body": new.body,
        "content": None if plain else msgspec.json.encode(new.content),
        "sent_at": now,
        "visible_at": now + delay,
        "hidden_seconds": delay,
        "receives": 0,
    }


def _received(row: Any, now: float) -> QueueMessage:
    return QueueMessage(
        sequence=row.sequence,
        message_id=row.message_id,
        body=row.body,
        content=_content(row.content),
        sent_at=row.sent_at,
        receives=row.receives + 1,
        first_received_at=now if row.first_received_at is None else row.first_received_at,
        receipt=secrets.token_hex(16),
    )


def _content(stored: bytes | None) -> MessageContent:
    return msgspec.json.decode(stored, type=MessageContent) if stored else MessageContent()
