"""The outbox: notices on their way to subscribers, until each was accepted or given up."""

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
"""What a database's listeners hear when something was added."""

_D = DELIVERIES.c
_CLOCK_SLACK_SECONDS = 2.0
"""What is less is the clock being adjusted."""

# From each subscription to the next by the index: to group all rows would be to read them all.
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
    """Have a notice delivered to each of these subscriptions, from now on."""
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
    """When the first delivery of each subscription that has any is due.

    It costs as much as there are such subscriptions, however many deliveries they have.
    """
    return {row.arn: row.due_at for row in connection.execute(_FIRST_DUE)}


def due(
    connection: Connection,
    subscription_arn: str,
    now: float,
    limit: int,
    without: Sequence[int] = (),
) -> list[Delivery]:
    """The deliveries of a subscription that are due, longest due first, but those in `without`."""
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
    """Of a subscription with more than `most` deliveries, some of those that are due last."""
    # By the index alone: only what is found is read.
    beyond = select(_D.delivery_id).where(_D.subscription_arn == subscription_arn)
    found = beyond.order_by(_D.due_at, _D.delivery_id).offset(most).limit(limit)
    statement = (
        select(DELIVERIES, NOTICES.c.content)
        .join(NOTICES, NOTICES.c.notice_id == _D.notice_id)
        .where(_D.delivery_id.in_(found.scalar_subquery()))
    )
    return [_delivery(row) for row in connection.execute(statement)]


def postpone(connection: Connection, delivery: Delivery, now: float, delay: float) -> None:
    """Note that an attempt failed, and that the next one is to be made `delay` seconds from now."""
    statement = update(DELIVERIES).where(_D.delivery_id == delivery.delivery_id)
    values = {"attempts": delivery.attempts + 1, "due_at": now + delay, "delay_seconds": delay}
    connection.execute(statement.values(**values))


def bound_waits(connection: Connection, now: float) -> int:
    """Let no delivery wait for longer from now than it was to when that was written: the clock may
    have been set back since. How many would have.

    Reads all deliveries. Those of an earlier version, of which that is not known, stay as they are.
    """
    too_long = _D.due_at > now + _D.delay_seconds + _CLOCK_SLACK_SECONDS
    statement = update(DELIVERIES).where(too_long).values(due_at=now + _D.delay_seconds)
    bounded = connection.execute(statement).rowcount
    if bounded:
        notify(connection, DELIVERIES_DUE)
    return bounded


def finish(connection: Connection, delivery: Delivery) -> bool:
    """Forget a delivery that was accepted or given up; False where it is gone already."""
    statement = delete(DELIVERIES).where(_D.delivery_id == delivery.delivery_id)
    gone = connection.execute(statement).rowcount > 0
    _drop_notices(connection, [delivery.notice_id])
    return gone


def drop(connection: Connection, subscription_arns: Sequence[str] | Select[Any]) -> None:
    """Forget all that is on its way to these subscriptions."""
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
