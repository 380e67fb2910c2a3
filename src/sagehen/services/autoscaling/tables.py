"""The tables of Application Auto Scaling."""

from sqlalchemy import JSON, Column, Double, Index, Integer, String, Table, Text, UniqueConstraint

from sagehen.state.rows import METADATA, SEQUENCE

__all__ = ["ACTIVITIES", "POLICIES", "SCHEDULED_ACTIONS", "TARGETS"]

_LONGEST_RESOURCE_ID = 255
"""of an endpoint's variant; the API allows 1600"""

TARGETS = Table(
    "scalable_targets",
    METADATA,
    Column("target_id", String(34), primary_key=True),
    Column("resource_id", String(_LONGEST_RESOURCE_ID), nullable=False),
    Column("dimension", String(64), nullable=False),
    Column("arn", String(256), nullable=False),
    Column("minimum", Integer, nullable=False),
    Column("maximum", Integer, nullable=False),
    Column("suspended", JSON(none_as_null=True), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("adjusted_for", String(64)),
    Column("last_out", JSON(none_as_null=True)),
    Column("last_in", JSON(none_as_null=True)),
    Column("last_decision", Text),
    Column("decided_at", Double),
    UniqueConstraint("resource_id", "dimension"),
)

POLICIES = Table(
    "scaling_policies",
    METADATA,
    Column("policy_id", String(36), primary_key=True),
    Column("target_id", String(34), nullable=False),
    Column("name", String(256), nullable=False),
    Column("arn", Text, nullable=False),
    Column("policy_type", String(32), nullable=False),
    Column("configuration", JSON(none_as_null=True), nullable=False),
    Column("alarms", JSON(none_as_null=True), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("breach", JSON(none_as_null=True)),
    UniqueConstraint("target_id", "name"),
)

SCHEDULED_ACTIONS = Table(
    "scheduled_actions",
    METADATA,
    Column("action_id", String(36), primary_key=True),
    Column("target_id", String(34), nullable=False),
    Column("name", String(256), nullable=False),
    Column("arn", Text, nullable=False),
    Column("schedule", String(1600), nullable=False),
    Column("timezone", String(64)),
    Column("starts_at", Double),
    Column("ends_at", Double),
    Column("minimum", Integer),
    Column("maximum", Integer),
    Column("created_at", Double, nullable=False),
    Column("next_at", Double, index=True),
    Column("ended_at", Double),
    UniqueConstraint("target_id", "name"),
)

ACTIVITIES = Table(
    "scaling_activities",
    METADATA,
    Column("number", SEQUENCE, primary_key=True),
    Column("activity_id", String(36), nullable=False),
    Column("resource_id", String(_LONGEST_RESOURCE_ID), nullable=False),
    Column("dimension", String(64), nullable=False),
    Column("description", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("status", String(16), nullable=False, index=True),
    Column("message", Text),
    Column("not_scaled", JSON(none_as_null=True)),
    Column("desired", Integer),
    Column("capacity", Integer),
    Column("before", Integer),
    Index(None, "resource_id", "dimension", "number"),
    sqlite_autoincrement=True,
)
"""Kept when their target is deregistered; `number` tells which of one moment came first."""
