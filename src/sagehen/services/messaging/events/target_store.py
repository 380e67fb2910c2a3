"""SQL of rule targets."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import JSON, Column, Connection, Index, String, Table, Text, func, select

from sagehen.services.messaging.events.records import RuleRecord, TargetRecord, target_address
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = ["TARGETS", "count", "get", "of_rule", "put", "remove", "rules_of"]

TARGETS = Table(
    "event_targets",
    METADATA,
    Column("rule_name", String(64), primary_key=True),
    Column("target_id", String(64), primary_key=True),
    Column("target_arn", Text, nullable=False),
    Column("definition", JSON(none_as_null=True), nullable=False),
    Column("secret", String(128)),
    Index("ix_event_targets_target_arn", "target_arn"),
)
_C = TARGETS.c


def put(connection: Connection, record: TargetRecord) -> None:
    values = msgspec.to_builtins(record)
    statement = rows.upsert(connection, TARGETS).values(**values)
    key = [_C.rule_name, _C.target_id]
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=values))


def get(connection: Connection, rule_name: str, target_id: str) -> TargetRecord | None:
    where = (_C.rule_name == rule_name, _C.target_id == target_id)
    records = rows.select_records(connection, TARGETS, TargetRecord, *where)
    return records[0] if records else None


def of_rule(
    connection: Connection, rule_name: str, after: str = "", limit: int | None = None
) -> list[TargetRecord]:
    where = (_C.rule_name == rule_name, _C.target_id > after)
    return rows.select_records(
        connection, TARGETS, TargetRecord, *where, order=[_C.target_id], limit=limit
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
        where = (_C.rule_name == rule.name, _C.target_id == target_id)
        if rows.delete_where(connection, TARGETS, *where):
            deliveries.drop(connection, [target_address(rule, target_id)])
        else:
            missing.append(target_id)
    return missing
