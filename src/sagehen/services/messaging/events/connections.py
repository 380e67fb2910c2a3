"""EventBridge connections: credentials of API destinations."""

import copy
import re
from typing import Any

from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.buses import after, limit_of, page_of
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
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRETS = ("ApiKeyValue", "Password")


def create_connection(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    definition = {key: one for key, one in params.items() if key != "Name"}
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
        found = EVENT_CONNECTIONS.page(connection, prefix, after(params), limit + 1)
    if params.get("ConnectionState", STATE) != STATE:
        found = []
    listed = [
        {
            **_changed(one),
            "Name": one.name,
            "AuthorizationType": one.definition["AuthorizationType"],
        }
        for one in found
    ]
    return page_of("Connections", listed, [one.name for one in found], limit)


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
    wanted = _PARAMETERS[kind]
    others = [one for one in (*_PARAMETERS.values(), "OAuthParameters") if one != wanted]
    if len(parameters.get(wanted, {})) != 2 or any(one in parameters for one in others):
        raise invalid(f"AuthParameters of a connection by {kind} have {wanted}, whole and alone.")
    key = parameters.get("ApiKeyAuthParameters", {}).get("ApiKeyName", "x")
    if not _HEADER.fullmatch(key):
        raise invalid(f"ApiKeyName {key} is no name of a header.")


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
    shown = copy.deepcopy(definition)
    parameters = shown["AuthParameters"]
    for kind in _PARAMETERS.values():
        for secret in _SECRETS:
            parameters.get(kind, {}).pop(secret, None)
    for given in parameters.get("InvocationHttpParameters", {}).values():
        for one in given:
            if one.get("IsValueSecret"):
                one.pop("Value", None)
    return shown
