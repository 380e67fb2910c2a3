"""SQL of the outbox."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    delete,
    exists,
    insert,
    select,
    text,
    update,
)

from sagehen.services.messaging.outbox.destinations import Delivery, OutboxMessage
from sagehen.state.database import notify
from sagehen.state.rows import METADATA, SEQUENCE

__all__ = [
    "DELIVERIES",
    "DELIVERIES_DUE",
    "NOTICES",
    "add",
    "bound_waits",
    "drop",
    "due",
    "due_by_address",
    "excess",
    "finish",
    "postpone",
]

DELIVERIES_DUE = "deliveries"
"""database notification channel"""

# One notice, the message, serves all its deliveries. JSON as bytes: PostgreSQL's text takes no NUL.
NOTICES = Table(
    "notices",
    METADATA,
    Column("notice_id", SEQUENCE, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("delivery_id", SEQUENCE, primary_key=True),
    # The address, whether it is a subscription's or a rule target's.
    Column("subscription_arn", String(384), nullable=False),
    Column("notice_id", BigInteger, nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", Double, nullable=False),
    # Seconds from the write to `due_at`.
    Column("delay_seconds", Double),
    Index(None, "subscription_arn", "due_at"),
    sqlite_autoincrement=True,
)
_D = DELIVERIES.c
_CLOCK_SLACK_SECONDS = 2.0
"""smaller differences come from clock adjustment"""

# Steps through the index by address: GROUP BY would read all rows.
_FIRST_DUE = text(
    """
    WITH RECURSIVE waiting(arn) AS (
        SELECT min(subscription_arn) FROM deliveries
        UNION ALL
        SELECT (SELECT min(subscription_arn) FROM deliveries WHERE subscription_arn > waiting.arn)
        FROM waiting WHERE waiting.arn IS NOT NULL
    )
    SELECT arn, (SELECT min(due_at) FROM deliveries WHERE subscription_arn = arn) AS due_at
    FROM waiting WHERE arn IS NOT NULL
    """
)


def add(
    connection: Connection, message: OutboxMessage, addresses: Sequence[str], kind: str
) -> None:
    """Adds a delivery per address, due now.

    Args:
        kind: how the service tells the kinds of its messages apart.
    """
    if not addresses:
        return
    statement = insert(NOTICES).values(content=msgspec.json.encode(message))
    notice_id = connection.execute(statement.returning(NOTICES.c.notice_id)).scalar_one()
    values = [
        {
            "subscription_arn": address,
            "notice_id": notice_id,
            "kind": kind,
            "attempts": 0,
            "due_at": message.published_at,
            "delay_seconds": 0.0,
        }
        for address in addresses
    ]
    connection.execute(insert(DELIVERIES), values)
    notify(connection, DELIVERIES_DUE)


def due_by_address(connection: Connection) -> dict[str, float]:
    """Returns when each address's first delivery is due.

    The cost depends on the number of addresses, not of deliveries.
    """
    return {row.arn: row.due_at for row in connection.execute(_FIRST_DUE)}


def due(
    connection: Connection,
    address: str,
    now: float,
    limit: int,
    without: Sequence[int] = (),
) -> list[Delivery]:
    """Returns deliveries oldest first, except those in `without`."""
    statement = (
        select(DELIVERIES, NOTICES.c.content)
        .join(NOTICES, NOTICES.c.notice_id == _D.notice_id)
        .where(_D.subscription_arn == address, _D.due_at <= now)
        .where(_D.delivery_id.not_in(list(without)))
        .order_by(_D.due_at, _D.delivery_id)
        .limit(limit)
    )
    return [_delivery(row) for row in connection.execute(statement)]


def excess(connection: Connection, address: str, keep: int, limit: int) -> list[Delivery]:
    """Returns some deliveries beyond the first `keep`."""
    # Uses the index alone, so that only excess rows are read.
    beyond = select(_D.delivery_id).where(_D.subscription_arn == address)
    excess_ids = beyond.order_by(_D.due_at, _D.delivery_id).offset(keep).limit(limit)
    statement = (
        select(DELIVERIES, NOTICES.c.content)
        .join(NOTICES, NOTICES.c.notice_id == _D.notice_id)
        .where(_D.delivery_id.in_(excess_ids.scalar_subquery()))
    )
    return [_delivery(row) for row in connection.execute(statement)]


def postpone(connection: Connection, delivery: Delivery, now: float, delay: float) -> None:
    """`delay` is in seconds."""
    statement = update(DELIVERIES).where(_D.delivery_id == delivery.delivery_id)
    values = {"attempts": delivery.attempts + 1, "due_at": now + delay, "delay_seconds": delay}
    connection.execute(statement.values(**values))


def bound_waits(connection: Connection, now: float) -> int:
    """Shortens waits that exceed their recorded delay; returns how many.

    Waits get too long when the clock is set back. Reads all deliveries; those of earlier versions
    have no recorded delay and stay.
    """
    too_long = _D.due_at > now + _D.delay_seconds + _CLOCK_SLACK_SECONDS
    statement = update(DELIVERIES).where(too_long).values(due_at=now + _D.delay_seconds)
    bounded = connection.execute(statement).rowcount
    if bounded:
        notify(connection, DELIVERIES_DUE)
    return bounded


def finish(connection: Connection, delivery: Delivery) -> bool:
    """Returns False if the delivery is already gone."""
    statement = delete(DELIVERIES).where(_D.delivery_id == delivery.delivery_id)
    is_deleted = connection.execute(statement).rowcount > 0
    _drop_notices(connection, [delivery.notice_id])
    return is_deleted


def drop(connection: Connection, addresses: Sequence[str] | Select[Any]) -> None:
    matching = _D.subscription_arn.in_(addresses)
    notice_ids = list(connection.scalars(select(_D.notice_id).where(matching).distinct()))
    connection.execute(delete(DELIVERIES).where(matching))
    for start in range(0, len(notice_ids), 500):
        _drop_notices(connection, notice_ids[start : start + 500])


def _drop_notices(connection: Connection, notice_ids: Sequence[int]) -> None:
    needed = exists().where(_D.notice_id == NOTICES.c.notice_id)
    connection.execute(delete(NOTICES).where(NOTICES.c.notice_id.in_(notice_ids), ~needed))


def _delivery(row: Any) -> Delivery:
    return Delivery(
        delivery_id=row.delivery_id,
        address=row.subscription_arn,
        kind=row.kind,
        message=msgspec.json.decode(row.content, type=OutboxMessage),
        content=row.content,
        notice_id=row.notice_id,
        attempts=row.attempts,
        due_at=row.due_at,
    )
