"""SQL of the outbox."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, delete, exists, insert, select, text, update

from sagehen.services.messaging.sns.records import Delivery, Notice, PostKind
from sagehen.services.messaging.tables import DELIVERIES, NOTICES
from sagehen.state.database import notify

__all__ = [
    "DELIVERIES_DUE",
    "add",
    "drop",
    "due",
    "due_by_subscription",
    "excess",
    "finish",
    "postpone",
]

DELIVERIES_DUE = "deliveries"
"""database notification channel"""

_D = DELIVERIES.c
_CLOCK_SLACK_SECONDS = 2.0
"""smaller differences come from clock adjustment"""

# Steps through the index by subscription: GROUP BY would read all rows.
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
    connection: Connection,
    notice: Notice,
    subscription_arns: Sequence[str],
    kind: PostKind = PostKind.NOTIFICATION,
) -> None:
    """Adds deliveries that are due now."""
    if not subscription_arns:
        return
    statement = insert(NOTICES).values(content=msgspec.json.encode(notice))
    notice_id = connection.execute(statement.returning(NOTICES.c.notice_id)).scalar_one()
    made = [
        {
            "subscription_arn": arn,
            "notice_id": notice_id,
            "kind": str(kind),
            "attempts": 0,
            "due_at": notice.published_at,
            "delay_seconds": 0.0,
        }
        for arn in subscription_arns
    ]
    connection.execute(insert(DELIVERIES), made)
    notify(connection, DELIVERIES_DUE)


def due_by_subscription(connection: Connection) -> dict[str, float]:
    """Returns when each subscription's first delivery is due.

    The cost depends on the number of subscriptions, not of deliveries.
    """
    return {row.arn: row.due_at for row in connection.execute(_FIRST_DUE)}


def due(
    connection: Connection,
    subscription_arn: str,
    now: float,
    limit: int,
    without: Sequence[int] = (),
) -> list[Delivery]:
    """Returns deliveries oldest first, except those in `without`."""
    statement = (
        select(DELIVERIES, NOTICES.c.content)
        .join(NOTICES, NOTICES.c.notice_id == _D.notice_id)
        .where(_D.subscription_arn == subscription_arn, _D.due_at <= now)
        .where(_D.delivery_id.not_in(list(without)))
        .order_by(_D.due_at, _D.delivery_id)
        .limit(limit)
    )
    return [_delivery(row) for row in connection.execute(statement)]


def excess(connection: Connection, subscription_arn: str, most: int, limit: int) -> list[Delivery]:
    """Returns some deliveries beyond the first `most`."""
    # Uses the index alone, so that only rows found are read.
    beyond = select(_D.delivery_id).where(_D.subscription_arn == subscription_arn)
    found = beyond.order_by(_D.due_at, _D.delivery_id).offset(most).limit(limit)
    statement = (
        select(DELIVERIES, NOTICES.c.content)
        .join(NOTICES, NOTICES.c.notice_id == _D.notice_id)
        .where(_D.delivery_id.in_(found.scalar_subquery()))
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
    gone = connection.execute(statement).rowcount > 0
    _drop_notices(connection, [delivery.notice_id])
    return gone


def drop(connection: Connection, subscription_arns: Sequence[str] | Select[Any]) -> None:
    mine = _D.subscription_arn.in_(subscription_arns)
    notices = list(connection.scalars(select(_D.notice_id).where(mine).distinct()))
    connection.execute(delete(DELIVERIES).where(mine))
    for start in range(0, len(notices), 500):
        _drop_notices(connection, notices[start : start + 500])


def _drop_notices(connection: Connection, notice_ids: Sequence[int]) -> None:
    awaited = exists().where(_D.notice_id == NOTICES.c.notice_id)
    connection.execute(delete(NOTICES).where(NOTICES.c.notice_id.in_(notice_ids), ~awaited))


def _delivery(row: Any) -> Delivery:
    return Delivery(
        delivery_id=row.delivery_id,
        subscription_arn=row.subscription_arn,
        kind=PostKind(row.kind),
        notice=msgspec.json.decode(row.content, type=Notice),
        notice_id=row.notice_id,
        attempts=row.attempts,
        due_at=row.due_at,
    )
