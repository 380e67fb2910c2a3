"""API destinations: HTTP APIs that rules can target."""

from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of
from sagehen.services.messaging.events.buses import limit_of, start_of_page
from sagehen.services.messaging.events.errors import invalid, missing
from sagehen.services.messaging.events.records import EventResource
from sagehen.services.messaging.events.resource_store import (
    EVENT_CONNECTIONS,
    EVENT_DESTINATIONS,
)
from sagehen.services.messaging.events.resources import EventResourceKind

__all__ = [
    "create_api_destination",
    "delete_api_destination",
    "describe_api_destination",
    "list_api_destinations",
    "update_api_destination",
]

STATE = "ACTIVE"
_SHOWN = ("ConnectionArn", "HttpMethod", "InvocationEndpoint", "InvocationRateLimitPerSecond")


def create_api_destination(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    definition = {"InvocationRateLimitPerSecond": 300} | params
    del definition["Name"]
    return _changed(_KIND.create(call, params["Name"], definition))


def update_api_destination(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Waiting events are sent to the new endpoint."""
    return _changed(_KIND.update(call, params))


def describe_api_destination(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    record = _KIND.read(call, params["Name"])
    return {**_listed(record), "Description": record.definition.get("Description")}


def list_api_destinations(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    prefix, limit = params.get("NamePrefix", ""), limit_of(params)
    connection_arn = params.get("ConnectionArn")
    with call.database.read() as connection:
        records = EVENT_DESTINATIONS.page(connection, prefix, start_of_page(params), limit + 1)
    page = page_of("ApiDestinations", records, [record.name for record in records], limit)
    matching = [
        record
        for record in page["ApiDestinations"]
        if connection_arn in (None, _connection_of(record))
    ]
    return {**page, "ApiDestinations": [_listed(record) for record in matching]}


def delete_api_destination(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Pending events go to the dead-letter queue."""
    _KIND.drop(call, params["Name"])
    return {}


def _check(connection: Connection, definition: dict[str, Any]) -> None:
    url = definition["InvocationEndpoint"]
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise invalid(f"Parameter InvocationEndpoint is not valid. Reason: {url} is not a URL.")
    arn = definition["ConnectionArn"]
    if EVENT_CONNECTIONS.by_arn(connection, arn) is None:
        raise missing(f"Connection '{arn}'")


_KIND = EventResourceKind(
    EVENT_DESTINATIONS,
    "ApiDestination",
    "api-destination",
    "An api-destination",
    "API destinations",
    _check,
)


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
    members = {name: record.definition[name] for name in _SHOWN}
    return {**_changed(record), "Name": record.name, **members}
