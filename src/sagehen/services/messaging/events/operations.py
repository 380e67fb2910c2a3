"""PutEvents, TestEventPattern and the table of EventBridge operations."""

import uuid
from typing import Any

import msgspec

from sagehen.frame.context import Operation, RequestContext
from sagehen.services.messaging.events.api_destinations import (
    create_api_destination,
    delete_api_destination,
    describe_api_destination,
    list_api_destinations,
    update_api_destination,
)
from sagehen.services.messaging.events.buses import check_bus, describe_event_bus, list_event_buses
from sagehen.services.messaging.events.connections import (
    create_connection,
    delete_connection,
    describe_connection,
    list_connections,
    update_connection,
)
from sagehen.services.messaging.events.errors import invalid
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.messaging.events.records import BUS, Event
from sagehen.services.messaging.events.rules import (
    TAG_OPERATIONS,
    check_pattern,
    delete_rule,
    describe_rule,
    disable_rule,
    enable_rule,
    list_rule_names_by_target,
    list_rules,
    put_rule,
)
from sagehen.services.messaging.events.targets import (
    list_targets_by_rule,
    put_targets,
    remove_targets,
)
from sagehen.services.messaging.filters.policy import read_pattern
from sagehen.services.messaging.message_attributes import is_text
from sagehen.wire.errors import AwsError

__all__ = ["OPERATIONS", "match_event_pattern", "put_events"]

MAX_ENTRY_BYTES = 2**20
"""of a request (eb-putevents, "Calculating PutEvents event entry size")"""
_TIME_BYTES = 14
_ROOM = 64
"""nesting levels left for reading events within others"""
_OF_EVENTS = ("id", "account", "source", "time", "region", "detail-type")
"""members that TestEventPattern requires; EventBridge's guide has `resources`, too, which it does
not ask for"""


def put_events(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Puts the valid entries: one failed entry does not stop the others."""
    entries = params["Entries"]
    if "EndpointId" in params:
        raise invalid("Not implemented by Sagehen: EndpointId.")
    if sum(map(_size, entries)) > MAX_ENTRY_BYTES:
        raise invalid("Total size of the entries in the request is over the limit.")
    read = [_read(call, entry) for entry in entries]
    events = [entry for entry in read if isinstance(entry, Event)]
    if events:
        with call.database.write() as connection:
            for event in events:
                put_event(connection, event)
    answers = [{"EventId": entry.event_id} if isinstance(entry, Event) else entry for entry in read]
    return {"FailedEntryCount": len(read) - len(events), "Entries": answers}


def match_event_pattern(_: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    check_pattern(params["EventPattern"])
    try:
        event = msgspec.json.decode(params["Event"])
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Parameter Event is not valid. Reason: it is not JSON: {error}.") from None
    if not isinstance(event, dict):
        raise invalid("Parameter Event is not valid. Reason: it is no JSON object.")
    if missing := [key for key in _OF_EVENTS if key not in event]:
        raise invalid(f"Parameter Event is not valid. Reason: it lacks {', '.join(missing)}.")
    return {"Result": read_pattern(params["EventPattern"]).matches(event)}


def _read(call: RequestContext, entry: dict[str, Any]) -> Event | dict[str, str]:
    """Returns the event, or the error entry of the answer."""
    for name in ("Source", "DetailType", "Detail"):
        if not entry.get(name):
            return _failed(
                "InvalidArgument",
                f"Parameter {name} is not valid. Reason: {name} is a required argument.",
            )
    if entry["Source"].startswith("aws."):
        return _failed("NotAuthorizedForSource", "Not authorized for the source.")
    try:
        check_bus(call, entry.get("EventBusName", BUS))
    except AwsError as error:
        return _failed(error.code, error.message)
    detail = _detail(entry["Detail"])
    if detail is None or not all(map(is_text, (entry["Source"], entry["DetailType"]))):
        return _failed("MalformedDetail", "Detail is malformed.")
    trace = entry.get("TraceHeader", call.trace_header)
    if trace is not None and not (trace.isascii() and trace.isprintable()):
        return _failed(
            "InvalidArgument",
            "Parameter TraceHeader is not valid. Reason: it is no header in printable ASCII.",
        )
    now = call.clock.now()
    time = entry.get("Time")
    return Event(
        event_id=str(uuid.uuid4()),
        source=entry["Source"],
        detail_type=entry["DetailType"],
        account=call.settings.account_id,
        region=call.settings.region,
        happened_at=now if time is None else _seconds(time),
        resources=tuple(entry.get("Resources", ())),
        detail=detail,
        put_at=now,
        trace_header=trace,
    )


def _detail(text: str) -> dict[str, Any] | None:
    """Returns None for text that is no JSON object or that queues could not carry."""
    if not is_text(text):
        return None
    try:
        detail = msgspec.json.decode(text)
        if text.count("{") + text.count("[") > _ROOM:
            # An envelope or template adds nesting, which must still be readable.
            msgspec.json.decode("[" * _ROOM + text + "]" * _ROOM)
        return detail if isinstance(detail, dict) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _seconds(time: Any) -> float:
    return float(time) if isinstance(time, (int, float)) else float(time.timestamp())


def _size(entry: dict[str, Any]) -> int:
    texts = [entry.get(name, "") for name in ("Source", "DetailType", "Detail")]
    texts += entry.get("Resources", [])
    return sum(len(text.encode()) for text in texts) + (_TIME_BYTES if "Time" in entry else 0)


def _failed(code: str, message: str) -> dict[str, str]:
    return {"ErrorCode": code, "ErrorMessage": message}


OPERATIONS: dict[str, Operation] = {
    "CreateApiDestination": create_api_destination,
    "CreateConnection": create_connection,
    "DeleteApiDestination": delete_api_destination,
    "DeleteConnection": delete_connection,
    "DeleteRule": delete_rule,
    "DescribeApiDestination": describe_api_destination,
    "DescribeConnection": describe_connection,
    "DescribeEventBus": describe_event_bus,
    "DescribeRule": describe_rule,
    "DisableRule": disable_rule,
    "EnableRule": enable_rule,
    "ListApiDestinations": list_api_destinations,
    "ListConnections": list_connections,
    "ListEventBuses": list_event_buses,
    "ListRuleNamesByTarget": list_rule_names_by_target,
    "ListRules": list_rules,
    "ListTagsForResource": TAG_OPERATIONS.list_tags,
    "ListTargetsByRule": list_targets_by_rule,
    "PutEvents": put_events,
    "PutRule": put_rule,
    "PutTargets": put_targets,
    "RemoveTargets": remove_targets,
    "TagResource": TAG_OPERATIONS.tag_resource,
    "TestEventPattern": match_event_pattern,
    "UntagResource": TAG_OPERATIONS.untag_resource,
    "UpdateApiDestination": update_api_destination,
    "UpdateConnection": update_connection,
}
