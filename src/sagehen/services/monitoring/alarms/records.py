"""Records of alarms."""

from enum import StrEnum
from typing import Any

import msgspec

__all__ = [
    "AlarmKind",
    "AlarmRecord",
    "AlarmState",
    "HistoryItem",
    "HistoryItemType",
    "Suppression",
]


class AlarmKind(StrEnum):
    METRIC = "MetricAlarm"
    COMPOSITE = "CompositeAlarm"


class AlarmState(StrEnum):
    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class Suppression(StrEnum):
    """Why a composite alarm's actions for its present state have not run: `ActionsSuppressedBy`."""

    WAIT_PERIOD = "WaitPeriod"
    """the suppressor may still go into ALARM"""
    ALARM = "Alarm"
    """the suppressor is in ALARM"""
    EXTENSION_PERIOD = "ExtensionPeriod"
    """the suppressor has left ALARM"""


class AlarmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm and its state; times are seconds since the epoch."""

    name: str
    kind: AlarmKind
    arn: str
    definition: dict[str, Any]
    """the parameters of PutMetricAlarm or PutCompositeAlarm, but for tags and ActionsEnabled"""
    actions_enabled: bool
    created_at: float
    configured_at: float
    state: AlarmState
    reason: str
    reason_data: str | None = None
    """JSON"""
    updated_at: float
    """of the state or its reason"""
    transitioned_at: float
    """of the state"""
    evaluation_state: str | None = None
    """such as `PARTIAL_DATA`"""
    policies_invoked_at: float | None = None
    """when scaling policies were last invoked in the present state"""
    policy_outcome: str | None = None
    """what the history last said of them in the present state"""
    suppressed_by: Suppression | None = None
    suppressed_until: float | None = None
    """end of the period of `suppressed_by`"""

    def actions(self, state: AlarmState) -> list[str]:
        """Returns the ARNs of the actions for a state."""
        member = {
            AlarmState.OK: "OKActions",
            AlarmState.ALARM: "AlarmActions",
            AlarmState.INSUFFICIENT_DATA: "InsufficientDataActions",
        }[state]
        arns: list[str] = self.definition.get(member, [])
        return arns


class HistoryItemType(StrEnum):
    CONFIGURATION_UPDATE = "ConfigurationUpdate"
    STATE_UPDATE = "StateUpdate"
    ACTION = "Action"


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an alarm's history, which outlives the alarm."""

    name: str
    kind: AlarmKind
    happened_at: float
    item_type: HistoryItemType
    summary: str
    data: str
    """JSON"""
