"""The messages of alarms to SNS topics, and their events for EventBridge."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sagehen.services.monitoring.alarms.actions import AlarmEvent, Notification
from sagehen.services.monitoring.alarms.evaluation.reasons import as_timestamp, period_of
from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord

__all__ = [
    "CREATE",
    "DELETE",
    "UPDATE",
    "configuration_event",
    "configuration_of",
    "notification",
    "state_event",
]

CREATE, UPDATE, DELETE = "create", "update", "delete"

_REGIONS = {
    "af-south-1": "Africa (Cape Town)",
    "ap-east-1": "Asia Pacific (Hong Kong)",
    "ap-northeast-1": "Asia Pacific (Tokyo)",
    "ap-northeast-2": "Asia Pacific (Seoul)",
    "ap-northeast-3": "Asia Pacific (Osaka)",
    "ap-south-1": "Asia Pacific (Mumbai)",
    "ap-south-2": "Asia Pacific (Hyderabad)",
    "ap-southeast-1": "Asia Pacific (Singapore)",
    "ap-southeast-2": "Asia Pacific (Sydney)",
    "ap-southeast-3": "Asia Pacific (Jakarta)",
    "ap-southeast-4": "Asia Pacific (Melbourne)",
    "ca-central-1": "Canada (Central)",
    "ca-west-1": "Canada West (Calgary)",
    "cn-north-1": "China (Beijing)",
    "cn-northwest-1": "China (Ningxia)",
    "eu-central-1": "EU (Frankfurt)",
    "eu-central-2": "EU (Zurich)",
    "eu-north-1": "EU (Stockholm)",
    "eu-south-1": "EU (Milan)",
    "eu-south-2": "EU (Spain)",
    "eu-west-1": "EU (Ireland)",
    "eu-west-2": "EU (London)",
    "eu-west-3": "EU (Paris)",
    "il-central-1": "Israel (Tel Aviv)",
    "me-central-1": "Middle East (UAE)",
    "me-south-1": "Middle East (Bahrain)",
    "sa-east-1": "South America (Sao Paulo)",
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-gov-east-1": "AWS GovCloud (US-East)",
    "us-gov-west-1": "AWS GovCloud (US-West)",
    "us-west-1": "US West (N. California)",
    "us-west-2": "US West (Oregon)",
}
"""the names that messages have instead of codes"""


def notification(
    topic_arn: str, old: AlarmRecord, new: AlarmRecord, triggers: Iterable[Mapping[str, Any]] = ()
) -> Notification:
    """Returns the message of a change of state.

    Args:
        triggers: the children that changed a composite alarm, as in its StateReasonData.
    """
    _, _, _, code, account, _ = new.arn.split(":", 5)
    region, definition = _REGIONS.get(code, code), new.definition
    body: dict[str, Any] = {
        "AlarmName": new.name,
        "AlarmDescription": definition.get("AlarmDescription"),
        "AWSAccountId": account,
        "AlarmConfigurationUpdatedTimestamp": as_timestamp(new.configured_at),
        "NewStateValue": new.state,
        "NewStateReason": new.reason,
        "StateChangeTime": as_timestamp(new.updated_at),
        "Region": region,
        "AlarmArn": new.arn,
        "OldStateValue": old.state,
        "ActionExecutedAfterMuteWindow": False,
        "OKActions": definition.get("OKActions", []),
        "AlarmActions": definition.get("AlarmActions", []),
        "InsufficientDataActions": definition.get("InsufficientDataActions", []),
    }
    if new.kind is AlarmKind.COMPOSITE:
        body["AlarmRule"] = definition["AlarmRule"]
        body["TriggeringChildren"] = [_child(trigger) for trigger in triggers]
    elif "Metrics" in definition:
        body["Trigger"] = _trigger(definition) | {
            "Metrics": [_query(query) for query in definition["Metrics"]]
        }
    else:
        body["Trigger"] = _metric(definition) | _trigger(definition)
    subject = f'{new.state}: "{new.name}" in {region}'
    return Notification(topic_arn, _fit(subject), _json(body), new.updated_at)


def _fit(subject: str) -> str:
    """SNS's subjects have at most 100 characters of ASCII."""
    printable = subject.encode("ascii", "replace").decode()
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def _child(trigger: Mapping[str, Any]) -> dict[str, Any]:
    state = trigger["state"]
    return {
        "Arn": trigger["arn"],
        "State": {"Value": state["value"], "Timestamp": state["timestamp"]},
    }


def _trigger(definition: Mapping[str, Any]) -> dict[str, Any]:
    trigger = {
        "Period": period_of(definition),
        "EvaluationPeriods": definition["EvaluationPeriods"],
        "DatapointsToAlarm": definition.get("DatapointsToAlarm"),
        "ComparisonOperator": definition["ComparisonOperator"],
        "Threshold": float(definition["Threshold"]),
        "TreatMissingData": definition.get("TreatMissingData", ""),
        "EvaluateLowSampleCountPercentile": definition.get("EvaluateLowSampleCountPercentile", ""),
    }
    return {member: value for member, value in trigger.items() if value is not None}


def _metric(definition: Mapping[str, Any]) -> dict[str, Any]:
    metric = {"MetricName": definition["MetricName"], "Namespace": definition["Namespace"]}
    if "Statistic" in definition:
        metric |= {"StatisticType": "Statistic", "Statistic": definition["Statistic"].upper()}
    else:
        extended = definition["ExtendedStatistic"]
        metric |= {"StatisticType": "ExtendedStatistic", "ExtendedStatistic": extended}
    dimensions = _dimension_list(definition.get("Dimensions", []))
    return {**metric, "Unit": definition.get("Unit"), "Dimensions": dimensions}


def _query(query: Mapping[str, Any]) -> dict[str, Any]:
    shown = {member: query[member] for member in ("Expression", "Id", "Label") if member in query}
    if "MetricStat" in query:
        metric_stat = query["MetricStat"]
        metric = metric_stat["Metric"]
        dimensions = _dimension_list(metric.get("Dimensions", []))
        shown["MetricStat"] = {
            **metric_stat,
            "Metric": {**metric, "Dimensions": dimensions},
        }
    return {**shown, "ReturnData": query.get("ReturnData", True)}


def _dimension_list(dimensions: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    return [{"value": one["Value"], "name": one["Name"]} for one in dimensions]


def state_event(old: AlarmRecord, new: AlarmRecord) -> AlarmEvent:
    detail = {
        "alarmName": new.name,
        "configuration": _state_configuration(new),
        "previousState": _state(old),
        "state": _state(new),
    }
    return AlarmEvent("CloudWatch Alarm State Change", new.arn, new.updated_at, detail)


def configuration_event(
    operation: str, record: AlarmRecord, previous: AlarmRecord | None, now: float
) -> AlarmEvent:
    """`operation` is CREATE, UPDATE or DELETE; `previous` is what an update replaced."""
    detail = {
        "alarmName": record.name,
        "operation": operation,
        "state": _state(record),
        "configuration": configuration_of(record),
    }
    if previous is not None:
        detail["previousConfiguration"] = configuration_of(previous)
    return AlarmEvent("CloudWatch Alarm Configuration Change", record.arn, now, detail)


def configuration_of(record: AlarmRecord) -> dict[str, Any]:
    """Returns the whole definition as EventBridge and the history have it."""
    definition = record.definition
    configuration: dict[str, Any] = {
        "alarmName": record.name,
        "actionsEnabled": record.actions_enabled,
        "timestamp": as_timestamp(record.configured_at),
        "okActions": definition.get("OKActions", []),
        "alarmActions": definition.get("AlarmActions", []),
        "insufficientDataActions": definition.get("InsufficientDataActions", []),
    }
    for member, value in definition.items():
        if member in _PLAIN_MEMBERS:
            configuration[_camel(member)] = value
    if "AlarmDescription" in definition:
        configuration["description"] = definition["AlarmDescription"]
    if record.kind is AlarmKind.METRIC:
        configuration["metrics"] = _metrics(record)
    return configuration


_PLAIN_MEMBERS = frozenset(
    {
        "ActionsSuppressor",
        "ActionsSuppressorExtensionPeriod",
        "ActionsSuppressorWaitPeriod",
        "AlarmRule",
        "ComparisonOperator",
        "DatapointsToAlarm",
        "EvaluateLowSampleCountPercentile",
        "EvaluationPeriods",
        "Threshold",
        "TreatMissingData",
    }
)
_SUPPRESSION_MEMBERS = (
    "ActionsSuppressor",
    "ActionsSuppressorWaitPeriod",
    "ActionsSuppressorExtensionPeriod",
)


def _state_configuration(record: AlarmRecord) -> dict[str, Any]:
    """Returns the part of the definition that events of states have."""
    definition = record.definition
    if record.kind is AlarmKind.COMPOSITE:
        members = ("AlarmRule", *_SUPPRESSION_MEMBERS)
        shown = {_camel(name): definition[name] for name in members if name in definition}
    else:
        shown = {"metrics": _metrics(record)}
    if "AlarmDescription" in definition:
        shown["description"] = definition["AlarmDescription"]
    return shown


def _state(record: AlarmRecord) -> dict[str, Any]:
    state = {
        "value": record.state,
        "reason": record.reason,
        "reasonData": record.reason_data,
        "timestamp": as_timestamp(record.updated_at),
        "evaluationState": record.evaluation_state,
    }
    if record.suppressed_by is not None:
        state["actionsSuppressedBy"] = record.suppressed_by
        state["actionsSuppressedReason"] = f"Actions suppressed by {record.suppressed_by}"
    return {member: value for member, value in state.items() if value is not None}


def _metrics(record: AlarmRecord) -> list[dict[str, Any]]:
    definition = record.definition
    if "Metrics" in definition:
        return [_event_query(query) for query in definition["Metrics"]]
    metric_stat = {
        "metric": _event_metric(definition),
        "period": definition["Period"],
        "stat": definition.get("Statistic") or definition.get("ExtendedStatistic"),
    }
    if "Unit" in definition:
        metric_stat["unit"] = definition["Unit"]
    # The same each time: it identifies the alarm's metric.
    metric_id = str(uuid.uuid5(uuid.NAMESPACE_URL, record.arn))
    return [{"id": metric_id, "metricStat": metric_stat, "returnData": True}]


def _event_query(query: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": query["Id"]}
    if "MetricStat" in query:
        given = query["MetricStat"]
        shown["metricStat"] = {
            "metric": _event_metric(given["Metric"]),
            "period": given["Period"],
            "stat": given["Stat"],
        }
        if "Unit" in given:
            shown["metricStat"]["unit"] = given["Unit"]
    for member in ("Expression", "Label"):
        if member in query:
            shown[_camel(member)] = query[member]
    return {**shown, "returnData": query.get("ReturnData", True)}


def _event_metric(metric: Mapping[str, Any]) -> dict[str, Any]:
    dimensions = {one["Name"]: one["Value"] for one in metric.get("Dimensions", [])}
    return {
        "namespace": metric["Namespace"],
        "name": metric["MetricName"],
        "dimensions": dimensions,
    }


def _camel(member: str) -> str:
    return member[0].lower() + member[1:]


def _json(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(body).decode()
