"""SQL of SNS subscriptions."""

import hashlib

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, select, update

from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns.records import SubscriptionRecord, SubscriptionState
from sagehen.services.messaging.tables import SUBSCRIPTIONS
from sagehen.state import rows

__all__ = [
    "by_token",
    "confirmed",
    "count",
    "count_filtered",
    "drop_all",
    "drop_expired",
    "find",
    "get",
    "insert",
    "page",
    "update_record",
]

_C = SUBSCRIPTIONS.c


def insert(connection: Connection, record: SubscriptionRecord) -> bool:
    """Returns False if topic, protocol and endpoint are taken."""
    statement = rows.upsert(connection, SUBSCRIPTIONS).values(
        **msgspec.to_builtins(record), key=_key(record)
    )
    return rows.inserts(connection, statement.on_conflict_do_nothing())


def get(connection: Connection, arn: str, lock: bool = False) -> SubscriptionRecord | None:
    """Also returns deleted subscriptions."""
    return _one(connection, _C.arn == arn, lock)


def by_token(connection: Connection, token: str, lock: bool = False) -> SubscriptionRecord | None:
    """Also returns deleted and expired subscriptions."""
    return _one(connection, _C.token == token, lock)


def find(
    connection: Connection, topic_arn: str, protocol: str, endpoint: str
) -> SubscriptionRecord | None:
    """Skips deleted subscriptions."""
    return _one(connection, _C.key == _digest(topic_arn, protocol, endpoint), lock=True)


def confirmed(connection: Connection, topic_arn: str) -> list[SubscriptionRecord]:
    mine = and_(_C.topic_arn == topic_arn, _C.state == SubscriptionState.CONFIRMED)
    return rows.select_records(connection, SUBSCRIPTIONS, SubscriptionRecord, mine)


def page(
    connection: Connection, topic_arn: str | None, after: str, limit: int
) -> list[SubscriptionRecord]:
    """Skips deleted subscriptions."""
    wanted = [_C.arn > after, _C.state != SubscriptionState.DELETED]
    if topic_arn is not None:
        wanted.append(_C.topic_arn == topic_arn)
    return rows.select_records(
        connection, SUBSCRIPTIONS, SubscriptionRecord, *wanted, order=[_C.arn], limit=limit
    )


def count(connection: Connection, topic_arn: str) -> dict[SubscriptionState, int]:
    statement = select(_C.state, func.count()).where(_C.topic_arn == topic_arn).group_by(_C.state)
    found = {SubscriptionState(state): number for state, number in connection.execute(statement)}
    return {state: found.get(state, 0) for state in SubscriptionState}


def count_filtered(connection: Connection, topic_arn: str) -> int:
    mine = [_C.topic_arn == topic_arn, _C.state != SubscriptionState.DELETED]
    found = connection.scalars(select(_C.attributes).where(*mine))
    return sum(1 for attributes in found if attributes.get("FilterPolicy"))


def update_record(connection: Connection, record: SubscriptionRecord) -> bool:
    """Returns False if there is none. Deletion frees topic, protocol and endpoint."""
    statement = update(SUBSCRIPTIONS).where(_C.arn == record.arn)
    values = statement.values(**msgspec.to_builtins(record), key=_key(record))
    return connection.execute(values).rowcount > 0


def drop_all(connection: Connection, topic_arn: str) -> None:
    """Deletes a topic's subscriptions and their pending deliveries."""
    mine = select(_C.arn).where(_C.topic_arn == topic_arn)
    deliveries.drop(connection, mine)
    rows.delete_where(connection, SUBSCRIPTIONS, _C.topic_arn == topic_arn)


def drop_expired(connection: Connection, now: float, limit: int) -> int:
    """Deletes unconfirmed and deleted subscriptions with expired tokens."""
    old = and_(_C.state != SubscriptionState.CONFIRMED, _C.token_expires_at <= now)
    arns = list(connection.scalars(select(_C.arn).where(old).limit(limit)))
    deliveries.drop(connection, arns)
    rows.delete_where(connection, SUBSCRIPTIONS, _C.arn.in_(arns))
    return len(arns)


def _one(
    connection: Connection, where: ColumnElement[bool], lock: bool
) -> SubscriptionRecord | None:
    found = rows.select_records(connection, SUBSCRIPTIONS, SubscriptionRecord, where, lock=lock)
    return found[0] if found else None


def _key(record: SubscriptionRecord) -> str:
    if record.state is SubscriptionState.DELETED:
        return _digest(record.arn)
    return _digest(record.topic_arn, record.protocol, record.endpoint)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
