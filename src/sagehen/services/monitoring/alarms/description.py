"""Describes alarms as DescribeAlarms does."""

from typing import Any

from sagehen.frame.named_records import as_time
from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord

__all__ = ["MEMBERS", "describe"]

MEMBERS = {AlarmKind.METRIC: "MetricAlarms", AlarmKind.COMPOSITE: "CompositeAlarms"}
"""of DescribeAlarms' answer"""


def describe(record: AlarmRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "AlarmName": record.name,
        "AlarmArn": record.arn,
        "OKActions": [],
        "AlarmActions": [],
        "InsufficientDataActions": [],
        **record.definition,
        "AlarmConfigurationUpdatedTimestamp": as_time(record.configured_at),
        "ActionsEnabled": record.actions_enabled,
        "StateValue": record.state,
        "StateReason": record.reason,
        "StateReasonData": record.reason_data,
        "StateUpdatedTimestamp": as_time(record.updated_at),
        "StateTransitionedTimestamp": as_time(record.transitioned_at),
    }
    if record.kind is AlarmKind.METRIC:
        shown["EvaluationState"] = record.evaluation_state
        if "MetricName" in record.definition:
            shown.setdefault("Dimensions", [])
    elif record.suppressed_by is not None:
        shown["ActionsSuppressedBy"] = record.suppressed_by
        shown["ActionsSuppressedReason"] = f"Actions suppressed by {record.suppressed_by}"
    return shown
