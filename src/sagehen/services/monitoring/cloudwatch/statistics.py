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
    is_percentile,
    period_minutes,
    read_dimensions,
    value,
    whole_second,
)
from sagehen.services.monitoring.cloudwatch.sample_reads import (
    Window,
    find,
    read,
    read_sketches,
)

__all__ = ["get_metric_statistics", "start_minute"]

MAX_DATAPOINTS = 1440


def get_metric_statistics(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Periods begin at the start time, in whole minutes; each unit has its own points."""
    names, percentiles = _statistics(params)
    window = _window(params)
    name = params["MetricName"]
    dimensions = read_dimensions(params.get("Dimensions", ()), "Dimensions")
    metric = Series(params["Namespace"], name, dimensions)
    with call.database.read() as connection:
        points = [
            _datapoint(window, slot, statistics, unit, names, percentiles)
            for unit, number in find(connection, metric).items()
            if params.get("Unit", unit) == unit
            for slot, statistics in _slots(connection, number, window, bool(percentiles))
        ]
    points.sort(key=lambda point: point["Timestamp"])
    return {"Label": name, "Datapoints": points}


def start_minute(moment: datetime) -> int:
    """Returns whole minutes since the epoch."""
    return int(moment.timestamp() // 60)


def _statistics(params: dict[str, Any]) -> tuple[list[str], list[str]]:
    names = params.get("Statistics", [])
    percentiles = params.get("ExtendedStatistics", [])
    if names and percentiles:
        raise combination(
            "The parameters Statistics and ExtendedStatistics cannot be specified together."
        )
    if not names and not percentiles:
        raise combination(
            "At least one of the parameters Statistics and ExtendedStatistics must be specified."
        )
    for percentile in percentiles:
        if not is_percentile(percentile):
            raise invalid(
                f"The value {percentile[:64]} for parameter ExtendedStatistics is invalid: Sagehen "
                "has percentiles from p0 to p100."
            )
    return names, percentiles


def _window(params: dict[str, Any]) -> Window:
    start, end = whole_second(params["StartTime"]), whole_second(params["EndTime"])
    if start >= end:
        raise invalid("The parameter StartTime must be less than the parameter EndTime.")
    period = period_minutes(params["Period"])
    window = Window(start_minute(start), math.ceil(end.timestamp() / 60), period)
    requested = -(-(window.end - window.start) // period)
    if requested > MAX_DATAPOINTS:
        raise combination(
            f"You have requested up to {requested:,} datapoints, which exceeds the limit of "
            f"{MAX_DATAPOINTS:,}. You may reduce the datapoints requested by increasing Period, "
            "or decreasing the time range."
        )
    return window


def _slots(
    connection: Connection, number: int, window: Window, with_sketches: bool
) -> Iterator[tuple[int, Statistics]]:
    reading = read_sketches if with_sketches else read
    try:
        yield from reading(connection, [number], window).items()
    except LimitExceeded as error:
        raise over_limit(f"{error} Ask for a shorter one.") from error


def _datapoint(
    window: Window,
    slot: int,
    statistics: Statistics,
    unit: str,
    names: list[str],
    percentiles: list[str],
) -> dict[str, Any]:
    minute = window.start + slot * window.period
    point: dict[str, Any] = {"Timestamp": datetime.fromtimestamp(minute * 60, UTC), "Unit": unit}
    point |= {name: value(name, statistics) for name in names}
    if percentiles:
        values = {percentile: value(percentile, statistics) for percentile in percentiles}
        point["ExtendedStatistics"] = {
            percentile: number for percentile, number in values.items() if number is not None
        }
    return point
