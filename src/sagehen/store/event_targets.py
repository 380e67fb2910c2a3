"""The targets of EventBridge's rules, and webhooks among them as the deliverer knows receivers."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, func, select

from sagehen.domain.event_deliveries import address_of, as_subscription, read_address
from sagehen.domain.events import RuleRecord, TargetRecord
from sagehen.domain.topics import SubscriptionRecord, TopicRecord
from sagehen.store import deliveries, event_rules, rows
from sagehen.store.event_tables import TARGETS

__all__ = ["count", "find_receiver", "get", "of_rule", "put", "remove", "rules_of"]

_C = TARGETS.c


def put(connection: Connection, record: TargetRecord) -> None:
    """Add a target, or replace the rule's one of its id."""
    values = msgspec.to_builtins(record)
    statement = rows.upsert(connection, TARGETS).values(**values)
    key = [_C.rule_name, _C.target_id]
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=values))


def get(connection: Connection, rule_name: str, target_id: str) -> TargetRecord | None:
    """The rule's target of that id."""
    mine = (_C.rule_name == rule_name, _C.target_id == target_id)
    found = rows.select_records(connection, TARGETS, TargetRecord, *mine)
    return found[0] if found else None


def of_rule(
    connection: Connection, rule_name: str, after: str = "", limit: int | None = None
) -> list[TargetRecord]:
    """A rule's targets whose ids come behind `after`, sorted."""
    mine = (_C.rule_name == rule_name, _C.target_id > after)
    return rows.select_records(
        connection, TARGETS, TargetRecord, *mine, order=[_C.target_id], limit=limit
    )


def rules_of(connection: Connection, target_arn: str, after: str, limit: int) -> list[str]:
    """Names, behind `after` and sorted, of the rules that have this target."""
    statement = select(_C.rule_name).where(_C.target_arn == target_arn, _C.rule_name > after)
    return list(connection.scalars(statement.distinct().order_by(_C.rule_name).limit(limit)))


def count(connection: Connection, rule_name: str) -> int:
    """How many a rule has."""
    return connection.scalar(select(func.count()).where(_C.rule_name == rule_name)) or 0


def remove(connection: Connection, rule: RuleRecord, target_ids: Sequence[str]) -> list[str]:
    """Drop targets of a rule, with what is on its way to them; the ids that it did not have."""
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
    """A webhook as a subscription to its rule; None where either is gone."""
    rule_name, target_id = read_address(address)
    rule = event_rules.get(connection, rule_name)
    target = get(connection, rule_name, target_id)
    return as_subscription(rule, target) if rule and target else None
