"""SQL of queue messages."""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)

from sagehen.services.messaging.sqs.records import (
    MessageContent,
    NewMessage,
    QueueMessage,
    QueueRecord,
)
from sagehen.services.messaging.tables import EMPTIED_QUEUES, MESSAGES
from sagehen.state.database import notify

__all__ = [
    "MESSAGES_SENT",
    "bound_waits",
    "change_visibility",
    "counts",
    "next_visible",
    "receive",
    "remove",
    "send",
    "sweep",
    "take_exhausted",
]

MESSAGES_SENT = "messages"
"""database notification channel; its messages are queue names"""

_M = MESSAGES.c
_NEVER_RECEIVED = {"first_received_at": None, "receipt": None, "hidden_seconds": 0.0}
_LONGEST_HIDDEN_SECONDS = 43_200.0
"""SQS's maximum, for messages of earlier versions, which have no record"""
_CLOCK_SLACK_SECONDS = 2.0
"""smaller differences come from clock adjustment"""
_KEEP_EMPTIED_SECONDS = 3600.0
"""a sender may still use the old id"""


def send(connection: Connection, queue: QueueRecord, new: Sequence[NewMessage], now: float) -> None:
    connection.execute(insert(MESSAGES), [_row(queue, one, now) for one in new])
    notify(connection, MESSAGES_SENT, queue.name)


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
    wanted = _visible(queue, now)
    if most_receives is not None:
        wanted = and_(wanted, _M.receives < most_receives)
    statement = _in_order(select(MESSAGES).where(wanted), limit)
    received = [_received(row, now) for row in connection.execute(statement)]
    for one in received:
        connection.execute(
            update(MESSAGES)
            .where(_M.sequence == one.sequence)
            .values(
                visible_at=now + visibility_seconds,
                hidden_seconds=visibility_seconds,
                receives=one.receives,
                first_received_at=one.first_received_at,
                receipt=one.receipt,
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
    found = connection.execute(_in_order(first, limit)).all()
    spent = [row for row in found if row.receives >= most_receives]
    anew = {"queue_id": target.queue_id, "visible_at": now, "receives": 0, **_NEVER_RECEIVED}
    for sequence, content, _ in spent:
        kept = msgspec.structs.replace(_content(content), source_arn=source_arn)
        moved = update(MESSAGES).where(_M.sequence == sequence)
        connection.execute(moved.values(content=msgspec.json.encode(kept), **anew))
    if spent:
        notify(connection, MESSAGES_SENT, target.name)
    return len(spent)


def remove(connection: Connection, queue: QueueRecord, sequence: int, receipt: str) -> bool:
    """Returns False if the receipt is void."""
    mine = _held(queue, sequence, receipt)
    return connection.execute(delete(MESSAGES).where(mine)).rowcount > 0


def change_visibility(
    connection: Connection,
    queue: QueueRecord,
    sequence: int,
    receipt: str,
    visible_at: float,
    now: float,
) -> bool:
    """Returns False if the receipt is void."""
    mine = and_(_held(queue, sequence, receipt), _M.visible_at > now)
    values = {"visible_at": visible_at, "hidden_seconds": visible_at - now}
    changed = connection.execute(update(MESSAGES).where(mine).values(**values))
    if changed.rowcount and visible_at <= now:
        notify(connection, MESSAGES_SENT, queue.name)
    return changed.rowcount > 0


def bound_waits(connection: Connection, queues: Sequence[QueueRecord], now: float) -> int:
    """Shortens hiding that exceeds its recorded time; returns how many.

    Messages are hidden too long when the clock is set back.
    """
    bounded = 0
    hidden = func.coalesce(_M.hidden_seconds, _LONGEST_HIDDEN_SECONDS)
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
    mine = and_(_M.queue_id == queue.queue_id, _kept(queue, now))
    statement = select(_M.visible_at).where(mine).order_by(_M.visible_at).limit(1)
    found: float | None = connection.scalar(statement)
    return found


def counts(connection: Connection, queue: QueueRecord, now: float) -> tuple[int, int, int]:
    """Returns numbers of visible, received and delayed messages."""
    mine = _M.queue_id == queue.queue_id

    def number(*where: ColumnElement[bool]) -> int:
        return connection.scalar(select(func.count()).where(mine, *where)) or 0

    hidden = _M.visible_at > now
    delayed = number(hidden, _M.receives == 0)
    return number(_M.visible_at <= now), number(hidden) - delayed, delayed


def sweep(connection: Connection, queues: Sequence[QueueRecord], now: float, limit: int) -> int:
    """Deletes expired messages and those of emptied queues; returns how many.

    `limit` is per queue.
    """
    gone = 0
    for queue in queues:
        old = and_(_M.queue_id == queue.queue_id, _M.sent_at <= now - queue.retention_seconds)
        gone += _delete_some(connection, old, limit)
    for queue_id, emptied_at in connection.execute(select(EMPTIED_QUEUES)).all():
        some = _delete_some(connection, _M.queue_id == queue_id, limit)
        if some == 0 and emptied_at + _KEEP_EMPTIED_SECONDS <= now:
            connection.execute(delete(EMPTIED_QUEUES).where(EMPTIED_QUEUES.c.queue_id == queue_id))
        gone += some
    return gone


def _delete_some(connection: Connection, where: ColumnElement[bool], limit: int) -> int:
    some = select(_M.sequence).where(where).limit(limit)
    return connection.execute(delete(MESSAGES).where(_M.sequence.in_(some))).rowcount


def _visible(queue: QueueRecord, now: float) -> ColumnElement[bool]:
    return and_(_M.queue_id == queue.queue_id, _M.visible_at <= now, _kept(queue, now))


def _kept(queue: QueueRecord, now: float) -> ColumnElement[bool]:
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
