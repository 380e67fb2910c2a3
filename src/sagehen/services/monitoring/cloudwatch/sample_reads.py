"""Queries of stored metric samples."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select

from sagehen.base.errors import LimitExceeded
from sagehen.frame.statistics import Dimensions, Series, Statistics, of_set
from sagehen.services.monitoring.cloudwatch.sample_store import SAMPLES, SERIES, statistics_of

__all__ = ["MetricName", "Window", "find", "metrics", "read", "read_sketches"]

MAX_SKETCHES = 100_000
"""samples of one metric, each of a minute: over two months"""

Slots = dict[int, Statistics]
"""by period, counted from the window's start; empty periods are missing"""


class Window(NamedTuple):
    """A range in minutes since the epoch."""

    start: int
    end: int
    """exclusive"""
    period: int


class MetricName(NamedTuple):
    namespace: str
    name: str
    dimensions: Dimensions
    cursor: int
    """cursor for the next page"""


def find(connection: Connection, metric: Series) -> dict[str, int]:
    """Returns the ids of a metric's series by unit."""
    statement = select(SERIES.c.unit, SERIES.c.series_id).where(SERIES.c.metric == metric.metric)
    return {
        row.unit: row.series_id for row in connection.execute(statement.order_by(SERIES.c.unit))
    }


def metrics(
    connection: Connection,
    after: int,
    namespace: str | None,
    name: str | None,
    since_minute: int,
) -> Iterator[MetricName]:
    """Yields metrics with samples since `since_minute`, in the order first seen."""
    where: list[ColumnElement[bool]] = []
    if namespace is not None:
        where.append(SERIES.c.namespace == namespace)
    if name is not None:
        where.append(SERIES.c.name == name)
    first = func.min(SERIES.c.series_id)
    columns = (SERIES.c.namespace, SERIES.c.name, SERIES.c.dimensions)
    statement = (
        select(*columns, first)
        .where(*where)
        .group_by(SERIES.c.metric, *columns)
        .having(first > after, func.max(SERIES.c.last_minute) >= since_minute)
        .order_by(first)
    )
    for found_namespace, found_name, dimensions, cursor in connection.execute(statement):
        decoded = msgspec.json.decode(dimensions, type=Dimensions)
        yield MetricName(found_namespace, found_name, decoded, cursor)


def read(connection: Connection, series_ids: Sequence[int], window: Window) -> Slots:
    """Returns statistics without distributions, which the database adds up itself."""
    slot = (SAMPLES.c.minute - window.start) // window.period
    statement = (
        select(
            slot,
            func.sum(SAMPLES.c["count"]),
            func.sum(SAMPLES.c["sum"]),
            func.min(SAMPLES.c.minimum),
            func.max(SAMPLES.c.maximum),
        )
        .where(*_inside(series_ids, window))
        .group_by(slot)
    )
    slots = {}
    for number, count, total, minimum, maximum in connection.execute(statement):
        slots[int(number)] = of_set(count, total, minimum, maximum)
        slots[int(number)].sum = total
    return slots


def read_sketches(connection: Connection, series_ids: Sequence[int], window: Window) -> Slots:
    """Returns statistics with distributions; raises LimitExceeded over MAX_SKETCHES samples."""
    statement = select(SAMPLES).where(*_inside(series_ids, window)).limit(MAX_SKETCHES + 1)
    slots: Slots = {}
    for number, row in enumerate(connection.execute(statement).mappings()):
        if number == MAX_SKETCHES:
            raise LimitExceeded(f"More than {MAX_SKETCHES} minutes are in the range asked for.")
        slot = (row["minute"] - window.start) // window.period
        slots.setdefault(slot, Statistics()).merge(statistics_of(row))
    return slots


def _inside(series_ids: Sequence[int], window: Window) -> tuple[ColumnElement[bool], ...]:
    return (
        SAMPLES.c.series_id.in_(series_ids),
        SAMPLES.c.minute >= window.start,
        SAMPLES.c.minute < window.end,
    )
