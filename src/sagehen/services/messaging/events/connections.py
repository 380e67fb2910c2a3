"""EventBridge connections: credentials of API destinations."""

import copy
import re
from typing import Any

from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of
from sagehen.services.messaging.events.buses import limit_of, start_of_page
from sagehen.services.messaging.events.errors import invalid, not_built
from sagehen.services.messaging.events.records import EventResource
from sagehen.services.messaging.events.resource_store import EVENT_CONNECTIONS
from sagehen.services.messaging.events.resources import EventResourceKind

__all__ = [
    "create_connection",
    "delete_connection",
    "describe_connection",
    "list_connections",
    "update_connection",
]

STATE = "AUTHORIZED"
_PARAMETERS = {"API_KEY": "ApiKeyAuthParameters", "BASIC": "BasicAuthParameters"}
_OAUTH = "OAuthParameters"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRETS = ("ApiKeyValue", "Password")


def create_connection(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    definition = {key: value for key, value in params.items() if key != "Name"}
    return _changed(_KIND.create(call, params["Name"], definition))


def update_connection(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Waiting events are sent with the new members."""
    return _changed(_KIND.update(call, params))


def describe_connection(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    record = _KIND.read(call, params["Name"])
    return {
        **_changed(record),
        "Name": record.name,
        **_without_secrets(record.definition),
        "SecretArn": call.arns.connection_secret(record.name, record.arn),
    }


def list_connections(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    prefix, limit = params.get("NamePrefix", ""), limit_of(params)
    with call.database.read() as connection:
        records = EVENT_CONNECTIONS.page(connection, prefix, start_of_page(params), limit + 1)
    if params.get("ConnectionState", STATE) != STATE:
        records = []
    listed = [
        {
            **_changed(record),
            "Name": record.name,
            "AuthorizationType": record.definition["AuthorizationType"],
        }
        for record in records
    ]
    return page_of("Connections", listed, [record.name for record in records], limit)


def delete_connection(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Pending events that need the connection go to the dead-letter queue."""
    record = _KIND.drop(call, params["Name"])
    return {**_changed(record), "ConnectionState": "DELETING"}


def _check(_: Connection, definition: dict[str, Any]) -> None:
    kind = definition["AuthorizationType"]
    if kind not in _PARAMETERS:
        raise not_built(f"AuthorizationType {kind}", "It is API_KEY or BASIC.")
    for member in ("InvocationConnectivityParameters", "KmsKeyIdentifier"):
        if member in definition:
            raise not_built(member)
    parameters = definition["AuthParameters"]
    if "ConnectivityParameters" in parameters:
        raise not_built("ConnectivityParameters")
    if parameters.get("InvocationHttpParameters", {}).get("BodyParameters"):
        raise not_built("BodyParameters")
    required = _PARAMETERS[kind]
    foreign = [member for member in (*_PARAMETERS.values(), _OAUTH) if member != required]
    if len(parameters.get(required, {})) != 2 or any(member in parameters for member in foreign):
        raise invalid(
            f"AuthParameters of a connection by {kind} must have {required} with both members, "
            "and no other credentials."
        )
    key = parameters.get("ApiKeyAuthParameters", {}).get("ApiKeyName", "x")
    if not _HEADER.fullmatch(key):
        raise invalid(f"ApiKeyName {key} is not a valid header name.")


_KIND = EventResourceKind(
    EVENT_CONNECTIONS, "Connection", "connection", "Connection", "connections", _check
)


def _changed(record: EventResource) -> dict[str, Any]:
    return {
        "ConnectionArn": record.arn,
        "ConnectionState": STATE,
        "CreationTime": record.created_at,
        "LastModifiedTime": record.modified_at,
        "LastAuthorizedTime": record.modified_at,
    }


def _without_secrets(definition: dict[str, Any]) -> dict[str, Any]:
    visible = copy.deepcopy(definition)
    parameters = visible["AuthParameters"]
    for kind in _PARAMETERS.values():
        for secret in _SECRETS:
            parameters.get(kind, {}).pop(secret, None)
    for items in parameters.get("InvocationHttpParameters", {}).values():
        for item in items:
            if item.get("IsValueSecret"):
                item.pop("Value", None)
    return visible
