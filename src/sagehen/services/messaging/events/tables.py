"""Tables of EventBridge's resources."""

from sqlalchemy import JSON, Column, Double, Index, String, Table, Text

from sagehen.state.rows import METADATA

__all__ = ["CONNECTIONS", "DESTINATIONS", "RULES", "TARGETS"]


def _resources(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("name", String(64), primary_key=True),
        Column("arn", String(256), nullable=False),
        Column("definition", JSON(none_as_null=True), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("modified_at", Double, nullable=False),
    )


RULES = Table(
    "event_rules",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("arn", String(256), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("event_pattern", Text, nullable=False),
    Column("description", Text),
    Column("role_arn", Text),
    Column("created_at", Double, nullable=False),
)
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
CONNECTIONS = _resources("event_connections")
DESTINATIONS = _resources("event_destinations")
