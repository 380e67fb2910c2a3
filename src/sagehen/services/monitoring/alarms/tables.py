"""Tables of alarms."""

from sqlalchemy import JSON, Boolean, Column, Double, Index, String, Table, Text

from sagehen.state.rows import METADATA, SEQUENCE

__all__ = ["ALARMS", "ALARM_CHILDREN", "ALARM_HISTORY"]

ALARMS = Table(
    "alarms",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("arn", String(512), nullable=False),
    Column("definition", JSON(none_as_null=True), nullable=False),
    Column("actions_enabled", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("configured_at", Double, nullable=False),
    Column("state", String(24), nullable=False),
    Column("reason", Text, nullable=False),
    Column("reason_data", Text),
    Column("updated_at", Double, nullable=False),
    Column("transitioned_at", Double, nullable=False),
    Column("evaluation_state", String(24)),
    Column("policies_invoked_at", Double),
    Column("policy_outcome", Text),
    Column("suppressed_by", String(16)),
    Column("suppressed_until", Double),
    Index("ix_alarms_kind", "kind", "name"),
    # Few rows have a period that ends.
    Index("ix_alarms_suppressed_until", "suppressed_until"),
)

# The alarms that a composite alarm's rule names, and its suppressor.
ALARM_CHILDREN = Table(
    "alarm_children",
    METADATA,
    Column("parent", String(255), primary_key=True),
    Column("child", String(255), primary_key=True),
    Column("is_suppressor", Boolean, primary_key=True),
    Index("ix_alarm_children_child", "child"),
)

ALARM_HISTORY = Table(
    "alarm_history",
    METADATA,
    Column("item_id", SEQUENCE, primary_key=True, autoincrement=True),
    Column("name", String(255), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("happened_at", Double, nullable=False),
    Column("item_type", String(24), nullable=False),
    Column("summary", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index("ix_alarm_history_name", "name", "item_id"),
    Index("ix_alarm_history_happened_at", "happened_at"),
)
