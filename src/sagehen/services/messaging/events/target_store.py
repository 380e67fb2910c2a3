"""SQL of rule targets."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, func, select

from sagehen.services.messaging.events import rule_store as event_rules
from sagehen.services.messaging.events.deliveries import (
    address_of,
    as_api,
    as_webhook,
    read_address,
)
from sagehen.services.messaging.events.records import RuleRecord, TargetRecord
from sagehen.services.messaging.events.resource_store import (
    EVENT_CONNECTIONS,
    EVENT_DESTINATIONS,
)
from sagehen.services.messaging.events.tables import TARGETS
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns.records import SubscriptionRecord, TopicRecord
from sagehen.state import rows

__all__ = ["count", "find_receiver", "get", "of_rule", "put", "remove", "rules_of"]

_C = TARGETS.c


def put(connection: Connection, record: TargetRecord) -> None:
    values = msgspec.to_builtins(record)
    statement = rows.upsert(connection, TARGETS).values(**values)
    key = [_C.rule_name, _C.target_id]
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=values))


def get(connection: Connection, rule_name: str, target_id: str) -> TargetRecord | None:
    mine = (_C.rule_name == rule_name, _C.target_id == target_id)
    found = rows.select_records(connection, TARGETS, TargetRecord, *mine)
    return found[0] if found else None


def of_rule(
    connection: Connection, rule_name: str, after: str = "", limit: int | None = None
) -> list[TargetRecord]:
    mine = (_C.rule_name == rule_name, _C.target_id > after)
    return rows.select_records(
        connection, TARGETS, TargetRecord, *mine, order=[_C.target_id], limit=limit
    )


def rules_of(connection: Connection, target_arn: str, after: str, limit: int) -> list[str]:
    statement = select(_C.rule_name).where(_C.target_arn == target_arn, _C.rule_name > after)
    return list(connection.scalars(statement.distinct().order_by(_C.rule_name).limit(limit)))


def count(connection: Connection, rule_name: str) -> int:
    return connection.scalar(select(func.count()).where(_C.rule_name == rule_name)) or 0


def remove(connection: Connection, rule: RuleRecord, target_ids: Sequence[str]) -> list[str]:
    """Deletes targets and their pending deliveries; returns unknown ids."""
    missing = []
    for target_id in target_ids:
        mine = (_C.rule_name == rule.name, _C.target_id == target_id)
        if rows.delete_where(connection, TARGETS, *mine):
            deliveries.drop(connection, [address_of(rule, target_id)])
        else:
            missing.append(target_id)
    return missing


def find_receiver(
    connection: Connection, address: str
) -> tuple[SubscriptionRecord, TopicRecord] | None:
    """Returns an HTTP target as a subscription; None if any part of it is gone."""
    rule_name, target_id = read_address(address)
    rule = event_rules.get(connection, rule_name)
    target = get(connection, rule_name, target_id)
    if rule is None or target is None:
        return None
    if not target.target_arn.startswith("arn:"):
        return as_webhook(rule, target)
    destination = EVENT_DESTINATIONS.by_arn(connection, target.target_arn)
    if destination is None:
        return None
    used = EVENT_CONNECTIONS.by_arn(connection, destination.definition["ConnectionArn"])
    return as_api(rule, target, destination, used) if used else None
