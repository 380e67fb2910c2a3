"""The operations on alarms and their tags."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import Operation, RequestContext
from sagehen.frame.named_records import as_time
from sagehen.frame.paging import page_of, read_token
from sagehen.services.monitoring.alarms import history, store
from sagehen.services.monitoring.alarms.composite.cascade import cascade, set_composite_state
from sagehen.services.monitoring.alarms.configuration import AlarmChanges
from sagehen.services.monitoring.alarms.description import MEMBERS, describe
from sagehen.services.monitoring.alarms.errors import no_alarm, no_tagged_alarm, not_json
from sagehen.services.monitoring.alarms.records import (
    AlarmKind,
    AlarmRecord,
    AlarmState,
    HistoryItem,
)
from sagehen.services.monitoring.alarms.transitions import NewState, change_state, values_in
from sagehen.services.monitoring.cloudwatch.errors import (
    combination,
    invalid,
    invalid_token,
    not_built,
    refused,
)
from sagehen.services.monitoring.cloudwatch.metrics import read_dimensions

__all__ = ["OPERATIONS"]

DEFAULT_PAGE = 100
_SCAN = 500
"""alarms read at once where a filter is not in SQL"""


def put_metric_alarm(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    changes: AlarmChanges = call.alarms
    new_tags = _TAG_OPERATIONS.read(params.get("Tags", []))
    with call.database.write() as connection:
        changes.put_metric_alarm(connection, params, new_tags, call.clock.now())
    return {}


def put_composite_alarm(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    changes: AlarmChanges = call.alarms
    new_tags = _TAG_OPERATIONS.read(params.get("Tags", []))
    with call.database.write() as connection:
        changes.put_composite_alarm(connection, params, new_tags, call.clock.now())
    return {}


def delete_alarms(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Unknown names are no error."""
    changes: AlarmChanges = call.alarms
    with call.database.write() as connection:
        changes.delete(connection, params["AlarmNames"], call.clock.now())
    return {}


def enable_alarm_actions(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Actions run from the next change of state on."""
    return _set_actions_enabled(call, params, enabled=True)


def disable_alarm_actions(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    return _set_actions_enabled(call, params, enabled=False)


def _set_actions_enabled(
    call: RequestContext, params: dict[str, Any], enabled: bool
) -> dict[str, Any]:
    """Unknown names are no error."""
    with call.database.write() as connection:
        store.set_actions_enabled(connection, params["AlarmNames"], enabled)
    return {}


def set_alarm_state(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The state lasts until the next evaluation, and a composite alarm's until a child changes."""
    changes: AlarmChanges = call.alarms
    reason_data = params.get("StateReasonData")
    if reason_data is not None and not _is_object(reason_data):
        raise not_json()
    now = call.clock.now()
    new_state = NewState(
        AlarmState(params["StateValue"]),
        params["StateReason"],
        reason_data,
        values_in(reason_data),
    )
    with call.database.write() as connection:
        record = store.get(connection, params["AlarmName"], lock=True)
        if record is None:
            raise no_alarm(params["AlarmName"])
        set_state = change_state if record.kind is AlarmKind.METRIC else set_composite_state
        changed = set_state(connection, record, new_state, changes.actions, now)
        if changed.state is not record.state:
            cascade(connection, [changed], changes.actions, now)
    return {}


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def describe_alarms(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Lists metric alarms only, unless AlarmTypes asks for others; log alarms do not exist here."""
    _check_describe(params)
    limit = params.get("MaxRecords", DEFAULT_PAGE)
    after = read_token(params["NextToken"], invalid_token) if "NextToken" in params else ""
    with call.database.read() as connection:
        found = _find(connection, params, after, limit + 1)
    answer: dict[str, Any] = {"MetricAlarms": [], "CompositeAlarms": [], "LogAlarms": []}
    for record in found[:limit]:
        answer[MEMBERS[record.kind]].append(describe(record))
    page = page_of("Alarms", found, [record.name for record in found], limit)
    return {**answer, "NextToken": page.get("NextToken")}


def _check_describe(params: dict[str, Any]) -> None:
    if "AlarmNames" in params and "AlarmNamePrefix" in params:
        raise combination(
            "The parameters AlarmNames and AlarmNamePrefix are mutually exclusive and you have "
            "specified both."
        )
    relations = [name for name in ("ChildrenOfAlarmName", "ParentsOfAlarmName") if name in params]
    if relations:
        others = params.keys() - {relations[0], "MaxRecords", "NextToken"}
        if others:
            raise combination(
                f"The parameter {relations[0]} cannot be specified together with "
                f"{', '.join(sorted(others))}."
            )


def _find(
    connection: Connection, params: dict[str, Any], after: str, limit: int
) -> list[AlarmRecord]:
    if "ChildrenOfAlarmName" in params:
        parent = _existing(connection, params["ChildrenOfAlarmName"])
        children = store.children_of_all(connection, {parent.name})
        return store.page(connection, after, limit, names=children)
    if "ParentsOfAlarmName" in params:
        child = _existing(connection, params["ParentsOfAlarmName"])
        links = store.parents_of(connection, [child.name])
        parents = {link.name for link in links if not link.is_suppressor}
        return store.page(connection, after, limit, names=parents)
    kinds = _kinds(params, default=[AlarmKind.METRIC])
    found: list[AlarmRecord] = []
    state, prefix = params.get("StateValue"), params.get("ActionPrefix")
    while len(found) < limit:
        some = store.page(
            connection,
            after,
            _SCAN if prefix else limit,
            kinds=kinds,
            names=params.get("AlarmNames"),
            prefix=params.get("AlarmNamePrefix", ""),
            state=None if state is None else AlarmState(state),
        )
        found += (record for record in some if prefix is None or _has_action(record, prefix))
        if prefix is None or len(some) < _SCAN:
            break
        after = some[-1].name
    return found[:limit]


def _has_action(record: AlarmRecord, prefix: str) -> bool:
    return any(arn.startswith(prefix) for state in AlarmState for arn in record.actions(state))


def _kinds(params: dict[str, Any], default: Sequence[AlarmKind]) -> list[AlarmKind]:
    given = params.get("AlarmTypes") or default
    return [kind for kind in AlarmKind if kind in given]


def _existing(connection: Connection, name: str) -> AlarmRecord:
    record = store.get(connection, name)
    if record is None:
        raise no_alarm(name)
    return record


def describe_alarms_for_metric(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Finds alarms on exactly this metric, by their own members and not by expressions."""
    dimensions = read_dimensions(params.get("Dimensions", ()), "Dimensions")
    with call.database.read() as connection:
        alarms = store.all_of_kind(connection, AlarmKind.METRIC)
    return {
        "MetricAlarms": [
            describe(record) for record in alarms if _watches(record, params, dimensions)
        ]
    }


def _watches(record: AlarmRecord, params: dict[str, Any], dimensions: object) -> bool:
    definition = record.definition
    if "MetricName" not in definition:
        return False
    if read_dimensions(definition.get("Dimensions", ()), "Dimensions") != dimensions:
        return False
    members = ("Namespace", "MetricName", "Statistic", "ExtendedStatistic", "Period", "Unit")
    return all(definition.get(member) == params[member] for member in members if member in params)


class _HistoryCursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    item_id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def describe_alarm_history(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The history outlives its alarm."""
    if "AlarmContributorId" in params:
        raise not_built("AlarmContributorId: alarms here watch one time series")
    limit = params.get("MaxRecords", DEFAULT_PAGE)
    start, end = params.get("StartDate"), params.get("EndDate")
    with call.database.read() as connection:
        found = history.page(
            connection,
            name=params.get("AlarmName"),
            kinds=_kinds(params, default=[AlarmKind.METRIC]),
            item_type=params.get("HistoryItemType"),
            start=None if start is None else start.timestamp(),
            end=None if end is None else end.timestamp(),
            after=_read_cursor(params.get("NextToken")),
            ascending=params.get("ScanBy") == "TimestampAscending",
            limit=limit + 1,
        )
    answer: dict[str, Any] = {"AlarmHistoryItems": [_item(item) for _, item in found[:limit]]}
    if len(found) > limit:
        cursor = _HistoryCursor(found[limit - 1][0])
        answer["NextToken"] = base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
    return answer


def _read_cursor(token: str | None) -> int | None:
    if token is None:
        return None
    try:
        decoded = base64.urlsafe_b64decode(token.encode())
        return msgspec.json.decode(decoded, type=_HistoryCursor).item_id
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid_token() from None


def _item(item: HistoryItem) -> dict[str, Any]:
    return {
        "AlarmName": item.name,
        "AlarmType": item.kind,
        "Timestamp": as_time(item.happened_at),
        "HistoryItemType": item.item_type,
        "HistorySummary": item.summary,
        "HistoryData": item.data,
    }


def _check_exists(call: RequestContext, connection: Connection, arn: str) -> None:
    if store.get(connection, _name_in(call, arn)) is None:
        raise no_tagged_alarm(arn)


def _name_in(call: RequestContext, arn: str) -> str:
    """Raises AwsError."""
    _, found, name = arn.partition(":alarm:")
    if not found or arn != call.arns.alarm(name):
        raise no_tagged_alarm(arn)
    return name


_TAG_OPERATIONS = tags.TagOperations(
    arn_member="ResourceARN",
    check_exists=_check_exists,
    repeated_key=lambda: invalid("The parameter Tags has a key more than once."),
    too_many=lambda count: refused(
        f"A resource may have {tags.MAX_TAGS} tags; this request would make {count}."
    ),
)


def list_tags_for_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """A deleted alarm has no tags, and is no error, as in CloudWatch."""
    arn = params["ResourceARN"]
    _name_in(call, arn)
    with call.database.read() as connection:
        return {"Tags": tags.as_list(tags.get(connection, arn))}


OPERATIONS: dict[str, Operation] = {
    "DeleteAlarms": delete_alarms,
    "DescribeAlarmHistory": describe_alarm_history,
    "DescribeAlarms": describe_alarms,
    "DescribeAlarmsForMetric": describe_alarms_for_metric,
    "DisableAlarmActions": disable_alarm_actions,
    "EnableAlarmActions": enable_alarm_actions,
    "ListTagsForResource": list_tags_for_resource,
    "PutCompositeAlarm": put_composite_alarm,
    "PutMetricAlarm": put_metric_alarm,
    "SetAlarmState": set_alarm_state,
    "TagResource": _TAG_OPERATIONS.tag_resource,
    "UntagResource": _TAG_OPERATIONS.untag_resource,
}
