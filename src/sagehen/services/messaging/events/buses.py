"""EventBridge's only bus, and the pages of its lists."""

from typing import Any

from sagehen.base.home import Home
from sagehen.frame.context import RequestContext
from sagehen.frame.paging import read_token
from sagehen.services.messaging.events.errors import invalid, no_bus
from sagehen.services.messaging.events.records import BUS

__all__ = ["check_bus", "describe_event_bus", "limit_of", "list_event_buses", "start_of_page"]


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


def start_of_page(params: dict[str, Any]) -> str:
    """Returns the name behind which a page begins; raises AwsError for a foreign NextToken."""
    return read_token(params.get("NextToken", ""), lambda: invalid("Invalid pagination token."))


def limit_of(params: dict[str, Any]) -> int:
    limit: int = params.get("Limit", DEFAULT_LIMIT)
    return limit
