"""SQL of SNS subscriptions."""

import hashlib

import msgspec
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    String,
    Table,
    Text,
    and_,
    func,
    select,
    update,
)

from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns.records import SubscriptionRecord, SubscriptionState
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = [
    "SUBSCRIPTIONS",
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

SUBSCRIPTIONS = Table(
    "subscriptions",
    METADATA,
    Column("arn", String(384), primary_key=True),
    # Digest of topic, protocol and endpoint, unique together.
    Column("key", String(64), nullable=False, unique=True),
    Column("topic_arn", String(320), nullable=False),
    Column("protocol", String(32), nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
    Column("token", String(64), nullable=False, unique=True),
    Column("token_expires_at", Double, nullable=False),
    Column("confirmed_by_owner", Boolean, nullable=False),
    Column("authenticate_on_unsubscribe", Boolean, nullable=False),
    Index(None, "topic_arn", "state"),
)
_C = SUBSCRIPTIONS.c


def insert(connection: Connection, record: SubscriptionRecord) -> bool:
    """Returns False if topic, protocol and endpoint are taken."""
    statement = rows.upsert(connection, SUBSCRIPTIONS).values(
        **msgspec.to_builtins(record), key=_key(record)
    )
    return rows.inserts(connection, statement.on_conflict_do_nothing())


def get(connection: Connection, arn: str, lock: bool = False) -> SubscriptionRecord | None:
    """Also returns deleted subscriptions."""
    return _find_one(connection, _C.arn == arn, lock)


def by_token(connection: Connection, token: str, lock: bool = False) -> SubscriptionRecord | None:
    """Also returns deleted and expired subscriptions."""
    return _find_one(connection, _C.token == token, lock)


def find(
    connection: Connection, topic_arn: str, protocol: str, endpoint: str
) -> SubscriptionRecord | None:
    """Skips deleted subscriptions."""
    return _find_one(connection, _C.key == _digest(topic_arn, protocol, endpoint), lock=True)


def confirmed(connection: Connection, topic_arn: str) -> list[SubscriptionRecord]:
    where = and_(_C.topic_arn == topic_arn, _C.state == SubscriptionState.CONFIRMED)
    return rows.select_records(connection, SUBSCRIPTIONS, SubscriptionRecord, where)


def page(
    connection: Connection, topic_arn: str | None, after: str, limit: int
) -> list[SubscriptionRecord]:
    """Skips deleted subscriptions."""
    where = [_C.arn > after, _C.state != SubscriptionState.DELETED]
    if topic_arn is not None:
        where.append(_C.topic_arn == topic_arn)
    return rows.select_records(
        connection, SUBSCRIPTIONS, SubscriptionRecord, *where, order=[_C.arn], limit=limit
    )


def count(connection: Connection, topic_arn: str) -> dict[SubscriptionState, int]:
    statement = select(_C.state, func.count()).where(_C.topic_arn == topic_arn).group_by(_C.state)
    counts = {SubscriptionState(state): number for state, number in connection.execute(statement)}
    return {state: counts.get(state, 0) for state in SubscriptionState}


def count_filtered(connection: Connection, topic_arn: str) -> int:
    where = [_C.topic_arn == topic_arn, _C.state != SubscriptionState.DELETED]
    all_attributes = connection.scalars(select(_C.attributes).where(*where))
    return sum(1 for attributes in all_attributes if attributes.get("FilterPolicy"))


def update_record(connection: Connection, record: SubscriptionRecord) -> bool:
    """Returns False if there is none. Deletion frees topic, protocol and endpoint."""
    statement = update(SUBSCRIPTIONS).where(_C.arn == record.arn)
    values = statement.values(**msgspec.to_builtins(record), key=_key(record))
    return connection.execute(values).rowcount > 0


def drop_all(connection: Connection, topic_arn: str) -> None:
    """Deletes a topic's subscriptions and their pending deliveries."""
    arns = select(_C.arn).where(_C.topic_arn == topic_arn)
    deliveries.drop(connection, arns)
    rows.delete_where(connection, SUBSCRIPTIONS, _C.topic_arn == topic_arn)


def drop_expired(connection: Connection, now: float, limit: int) -> int:
    """Deletes unconfirmed and deleted subscriptions with expired tokens."""
    old = and_(_C.state != SubscriptionState.CONFIRMED, _C.token_expires_at <= now)
    arns = list(connection.scalars(select(_C.arn).where(old).limit(limit)))
    deliveries.drop(connection, arns)
    rows.delete_where(connection, SUBSCRIPTIONS, _C.arn.in_(arns))
    return len(arns)


def _find_one(
    connection: Connection, where: ColumnElement[bool], lock: bool
) -> SubscriptionRecord | None:
    records = rows.select_records(connection, SUBSCRIPTIONS, SubscriptionRecord, where, lock=lock)
    return records[0] if records else None


def _key(record: SubscriptionRecord) -> str:
    if record.state is SubscriptionState.DELETED:
        return _digest(record.arn)
    return _digest(record.topic_arn, record.protocol, record.endpoint)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
