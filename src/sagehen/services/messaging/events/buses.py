"""EventBridge's only bus, and pagination by name."""

import base64
import binascii
from typing import Any

from sagehen.base.home import Home
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.errors import invalid, no_bus
from sagehen.services.messaging.events.records import BUS

__all__ = ["after", "check_bus", "describe_event_bus", "limit_of", "list_event_buses", "page_of"]


def describe_event_bus(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    check_bus(call, params.get("Name", BUS))
    return _bus(call)


def list_event_buses(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    return {"EventBuses": [_bus(call)] if BUS.startswith(params.get("NamePrefix", "")) else []}


def check_bus(call: RequestContext, bus: str) -> None:
    """Raises AwsError for any other bus than the default."""
    if bus not in (BUS, call.arns.event_bus(BUS)):
        raise no_bus(bus.rpartition("/")[2])


def _bus(call: RequestContext) -> dict[str, Any]:
    # The bus is as old as the account, so as its keys.
    created = Home(call.settings.home).credentials.stat().st_mtime
    return {
        "Name": BUS,
        "Arn": call.arns.event_bus(BUS),
        "CreationTime": created,
        "LastModifiedTime": created,
    }


DEFAULT_LIMIT = 100


def after(params: dict[str, Any]) -> str:
    """Raises AwsError for a foreign NextToken."""
    try:
        name = base64.urlsafe_b64decode(params.get("NextToken", "")).decode("ascii")
    except (binascii.Error, ValueError):
        raise invalid("Invalid pagination token.") from None
    if not name.isprintable():
        raise invalid("Invalid pagination token.")
    return name


def limit_of(params: dict[str, Any]) -> int:
    """Callers read one more row to know whether there is a next page."""
    limit: int = params.get("Limit", DEFAULT_LIMIT)
    return limit


def page_of(member: str, found: list[Any], names: list[str], limit: int) -> dict[str, Any]:
    """`found` may have one item more than a page."""
    answer: dict[str, Any] = {member: found[:limit]}
    if len(found) > limit:
        answer["NextToken"] = base64.urlsafe_b64encode(names[limit - 1].encode()).decode()
    return answer
