"""DescribeEventBus, ListEventBuses: there is one, the default bus.

EventBridge's pages, in the order of names.
"""

import base64
import binascii
from typing import Any

from sagehen.base.home import Home
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events.errors import invalid, no_bus
from sagehen.services.messaging.events.records import BUS

__all__ = ["after", "check_bus", "describe_event_bus", "limit_of", "list_event_buses", "page_of"]


def describe_event_bus(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The default bus, which has no policy."""
    check_bus(call, params.get("Name", BUS))
    return _bus(call)


def list_event_buses(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The default bus, if its name begins so."""
    return {"EventBuses": [_bus(call)] if BUS.startswith(params.get("NamePrefix", "")) else []}


def check_bus(call: RequestContext, bus: str) -> None:
    """Refuse any bus but the default one, which may be named by its ARN."""
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
    """The name that the page begins behind; raises AwsError where NextToken is none of ours."""
    try:
        name = base64.urlsafe_b64decode(params.get("NextToken", "")).decode("ascii")
    except (binascii.Error, ValueError):
        raise invalid("Invalid pagination token.") from None
    if not name.isprintable():
        raise invalid("Invalid pagination token.")
    return name


def limit_of(params: dict[str, Any]) -> int:
    """How many there are on a page; read one more, and it is known whether there is a next."""
    limit: int = params.get("Limit", DEFAULT_LIMIT)
    return limit


def page_of(member: str, found: list[Any], names: list[str], limit: int) -> dict[str, Any]:
    """The answer with one page of `found`, which may be one longer; `names` are theirs."""
    answer: dict[str, Any] = {member: found[:limit]}
    if len(found) > limit:
        answer["NextToken"] = base64.urlsafe_b64encode(names[limit - 1].encode()).decode()
    return answer
