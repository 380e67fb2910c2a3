"""DescribeEventBus, ListEventBuses: there is one, the default bus."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.eventbridge.refusals import no_bus
from sagehen.domain.events import BUS
from sagehen.home import Home

__all__ = ["check_bus", "describe_event_bus", "list_event_buses"]


def describe_event_bus(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The default bus, which has no policy."""
    check_bus(call, params.get("Name", BUS))
    return _bus(call)


def list_event_buses(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The default bus, if its name begins so."""
    return {"EventBuses": [_bus(call)] if BUS.startswith(params.get("NamePrefix", "")) else []}


def check_bus(call: Call, bus: str) -> None:
    """Refuse any bus but the default one, which may be named by its ARN."""
    if bus not in (BUS, call.arns.event_bus(BUS)):
        raise no_bus(bus.rpartition("/")[2])


def _bus(call: Call) -> dict[str, Any]:
    # The bus is as old as the account, so as its keys.
    created = Home(call.settings.home).credentials.stat().st_mtime
    return {
        "Name": BUS,
        "Arn": call.arns.event_bus(BUS),
        "CreationTime": created,
        "LastModifiedTime": created,
    }
