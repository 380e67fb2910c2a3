"""API destinations: HTTP APIs that are targets of rules, each with a connection."""

import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.eventbridge.listing import after, limit_of, page_of
from sagehen.api.eventbridge.refusals import existing, invalid, missing, over_limit
from sagehen.domain.events import EventResource
from sagehen.store.event_resources import EVENT_CONNECTIONS, EVENT_DESTINATIONS

__all__ = [
    "create_api_destination",
    "delete_api_destination",
    "describe_api_destination",
    "list_api_destinations",
    "update_api_destination",
]

MOST = 3000
STATE = "ACTIVE"
_SHOWN = ("ConnectionArn", "HttpMethod", "InvocationEndpoint", "InvocationRateLimitPerSecond")


def create_api_destination(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Make an API destination, which can be a target at once."""
    definition = {"InvocationRateLimitPerSecond": 300} | params
    del definition["Name"]
    now = call.clock.now()
    record = EventResource(
        name=params["Name"],
        arn=call.arns.event_resource("api-destination", params["Name"], str(uuid.uuid4())),
        definition=definition,
        created_at=now,
        modified_at=now,
    )
    with call.database.write() as connection:
        _check(connection, definition)
        if EVENT_DESTINATIONS.count(connection) >= MOST:
            raise over_limit(f"There are {MOST} API destinations, as many as there may be.")
        if not EVENT_DESTINATIONS.insert(connection, record):
            raise existing("ApiDestination", record.name)
    return _changed(record)


def update_api_destination(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Put what is given in place of what was; events that wait are sent there."""
    given = {key: one for key, one in params.items() if key != "Name"}
    with call.database.write() as connection:
        before = _existing(connection, params["Name"], lock=True)
        definition = {**before.definition, **given}
        _check(connection, definition)
        now = call.clock.now()
        record = msgspec.structs.replace(before, definition=definition, modified_at=now)
        EVENT_DESTINATIONS.update(connection, record)
    return _changed(record)


def describe_api_destination(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """All of an API destination."""
    with call.database.read() as connection:
        record = _existing(connection, params["Name"])
    return {**_listed(record), "Description": record.definition.get("Description")}


def list_api_destinations(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of API destinations, of one connection or all."""
    prefix, limit = params.get("NamePrefix", ""), limit_of(params)
    wanted = params.get("ConnectionArn")
    with call.database.read() as connection:
        found = EVENT_DESTINATIONS.page(connection, prefix, after(params), limit + 1)
    page = page_of("ApiDestinations", found, [one.name for one in found], limit)
    kept = [one for one in page["ApiDestinations"] if wanted in (None, _connection_of(one))]
    return {**page, "ApiDestinations": [_listed(one) for one in kept]}


def delete_api_destination(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Drop an API destination, with what is on its way; what comes then is for the dead letters."""
    with call.database.write() as connection:
        record = _existing(connection, params["Name"], lock=True)
        EVENT_DESTINATIONS.delete(connection, record.name)
    return {}


def _existing(connection: Connection, name: str, lock: bool = False) -> EventResource:
    record = EVENT_DESTINATIONS.get(connection, name, lock)
    if record is None:
        raise missing("ApiDestination", name)
    return record


def _check(connection: Connection, definition: dict[str, Any]) -> None:
    url = definition["InvocationEndpoint"]
    try:
        parts = urlsplit(url)
        well = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well = False
    if not well:
        raise invalid(f"Parameter InvocationEndpoint is not valid. Reason: {url} is no URL.")
    arn = definition["ConnectionArn"]
    if EVENT_CONNECTIONS.by_arn(connection, arn) is None:
        raise missing("Connection", arn)


def _connection_of(record: EventResource) -> str:
    return str(record.definition["ConnectionArn"])


def _changed(record: EventResource) -> dict[str, Any]:
    return {
        "ApiDestinationArn": record.arn,
        "ApiDestinationState": STATE,
        "CreationTime": record.created_at,
        "LastModifiedTime": record.modified_at,
    }


def _listed(record: EventResource) -> dict[str, Any]:
    shown = {name: record.definition[name] for name in _SHOWN}
    return {**_changed(record), "Name": record.name, **shown}
