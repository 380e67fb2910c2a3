"""GetMetricStatistics: one metric's values by period."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import LimitExceeded
from sagehen.frame.context import RequestContext
from sagehen.frame.statistics import Series, Statistics
from sagehen.services.monitoring.cloudwatch.errors import combination, invalid, over_limit
from sagehen.services.monitoring.cloudwatch.metrics import (
    FINEST_PERIOD,
    STATISTICS,
    check_period,
    is_statistic,
    read_dimensions,
    value,
    whole_second,
)
from sagehen.services.monitoring.cloudwatch.sample_reads import (
    Window,
    find,
    read,
)

__all__ = ["get_metric_statistics"]

MAX_DATAPOINTS = 1440


def get_metric_statistics(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Periods begin at the start time, in whole minutes; each unit has its own points."""
    names, extended = _statistics(params)
    window = _window(params)
    name = params["MetricName"]
    dimensions = read_dimensions(params.get("Dimensions", ()), "Dimensions")
    metric = Series(params["Namespace"], name, dimensions)
    with call.database.read() as connection:
        points = [
            _datapoint(start, statistics, unit, names, extended)
            for unit, number in find(connection, metric).items()
            if params.get("Unit", unit) == unit
            for start, statistics in _slots(connection, number, window, bool(extended))
        ]
    points.sort(key=lambda point: point["Timestamp"])
    return {"Label": name, "Datapoints": points}


def _statistics(params: dict[str, Any]) -> tuple[list[str], list[str]]:
    names = params.get("Statistics", [])
    extended = params.get("ExtendedStatistics", [])
    if names and extended:
        raise combination(
            "The parameters Statistics and ExtendedStatistics cannot be specified together."
        )
    if not names and not extended:
        raise combination(
            "At least one of the parameters Statistics and ExtendedStatistics must be specified."
        )
    for name in extended:
        if name in STATISTICS or not is_statistic(name):
            raise invalid(
                f"The value {name[:64]} for parameter ExtendedStatistics is not supported."
            )
    return names, extended


def _window(params: dict[str, Any]) -> Window:
    start, end = whole_second(params["StartTime"]), whole_second(params["EndTime"])
    if start >= end:
        raise invalid("The parameter StartTime must be less than the parameter EndTime.")
    period = check_period(params["Period"])
    requested = math.ceil((end - start).total_seconds() / period)
    if requested > MAX_DATAPOINTS:
        raise combination(
            f"You have requested up to {requested} datapoints, which exceeds the limit of "
            f"{MAX_DATAPOINTS}. You may reduce the datapoints requested by increasing Period, "
            "or decreasing the time range."
        )
    return Window.covering(start.timestamp(), end.timestamp(), max(period, FINEST_PERIOD))


def _slots(
    connection: Connection, number: int, window: Window, with_sketches: bool
) -> Iterator[tuple[int, Statistics]]:
    try:
        yield from read(connection, [number], window, with_sketches).items()
    except LimitExceeded as error:
        raise over_limit(f"{error} Ask for a shorter one.") from error


def _datapoint(
    start: int, statistics: Statistics, unit: str, names: list[str], extended: list[str]
) -> dict[str, Any]:
    point: dict[str, Any] = {"Timestamp": datetime.fromtimestamp(start, UTC), "Unit": unit}
    point |= {name: value(name, statistics) for name in names}
    if extended:
        values = {name: value(name, statistics) for name in extended}
        point["ExtendedStatistics"] = {
            name: number for name, number in values.items() if number is not None
        }
    return point
