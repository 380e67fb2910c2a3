"""Queries of stored metric samples."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select

from sagehen.base.errors import LimitExceeded
from sagehen.frame.statistics import Dimensions, Series, Statistics, of_set
from sagehen.services.monitoring.cloudwatch.sample_store import (
    MINUTES,
    SERIES,
    TENS,
    Resolution,
    statistics_of,
)

__all__ = ["MetricName", "Slots", "Window", "find", "find_all", "metrics", "read", "read_each"]

MAX_SKETCHES = 100_000
"""samples of one series, each of a minute: over two months"""

_CHUNK_SIZE = 500
"""values per statement, which databases limit"""

Slots = dict[int, Statistics]
"""by the second at which a period begins; empty periods are missing"""


class Window(NamedTuple):
    """A range of periods; all in seconds, the bounds since the epoch.

    With a period under a minute, bounds are multiples of ten seconds, else of a minute.
    """

    start: int
    end: int
    """exclusive"""
    period: int

    @property
    def resolution(self) -> Resolution:
        return MINUTES if self.period % MINUTES.seconds == 0 else TENS

    @classmethod
    def covering(cls, start: float, end: float, period: int) -> "Window":
        """Returns the window of whole minutes, or tens of seconds, that has both bounds."""
        unit = cls(0, 0, period).resolution.seconds
        return cls(int(start // unit) * unit, math.ceil(end / unit) * unit, period)

    def start_of(self, second: int) -> int:
        """Returns the beginning of the period in which a second is."""
        return self.start + (second - self.start) // self.period * self.period


class MetricName(NamedTuple):
    namespace: str
    name: str
    dimensions: Dimensions
    cursor: int
    """cursor for the next page"""


def find(connection: Connection, metric: Series) -> dict[str, int]:
    """Returns the ids of a metric's series by unit."""
    return find_all(connection, [metric.metric]).get(metric.metric, {})


def find_all(connection: Connection, digests: Collection[str]) -> dict[str, dict[str, int]]:
    """Returns the ids of series by unit, by the digests of their metrics (`Series.metric`)."""
    found: dict[str, dict[str, int]] = {}
    for chunk in _chunks(sorted(digests)):
        statement = (
            select(SERIES.c.metric, SERIES.c.unit, SERIES.c.series_id)
            .where(SERIES.c.metric.in_(chunk))
            .order_by(SERIES.c.metric, SERIES.c.unit)
        )
        for digest, unit, series_id in connection.execute(statement):
            found.setdefault(digest, {})[unit] = series_id
    return found


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


def read(
    connection: Connection, series_ids: Sequence[int], window: Window, distributions: bool = False
) -> Slots:
    """Adds several series up; raises LimitExceeded as `read_each` does."""
    slots: Slots = {}
    for of_series in read_each(connection, series_ids, window, distributions).values():
        for start, statistics in of_series.items():
            merged = slots.get(start)
            if merged is None:
                slots[start] = statistics
            else:
                merged.merge(statistics)
    return slots


def read_each(
    connection: Connection, series_ids: Sequence[int], window: Window, distributions: bool = False
) -> Mapping[int, Slots]:
    """Returns the periods of each series that has any.

    Without distributions the database adds up itself.

    Raises:
        LimitExceeded: distributions of more than MAX_SKETCHES samples.
    """
    found = _read(connection, series_ids, window, window.resolution, distributions)
    if window.resolution is TENS:
        # A series without fine samples has points at whole minutes.
        others = [number for number in series_ids if number not in found]
        found |= _read(connection, others, window, MINUTES, distributions)
    return found


def _read(
    connection: Connection,
    series_ids: Sequence[int],
    window: Window,
    resolution: Resolution,
    distributions: bool,
) -> dict[int, Slots]:
    found: dict[int, Slots] = {}
    reading, size = _sums, _CHUNK_SIZE
    if distributions:
        samples = (window.end - window.start) // resolution.seconds
        reading, size = _sketches, min(max(MAX_SKETCHES // max(samples, 1), 1), _CHUNK_SIZE)
    for chunk in _chunks(series_ids, size):
        for series_id, start, statistics in reading(connection, chunk, window, resolution):
            slots = found.setdefault(series_id, {})
            merged = slots.get(start)
            if merged is None:
                slots[start] = statistics
            else:
                merged.merge(statistics)
    return found


_Found = Iterator[tuple[int, int, Statistics]]
"""series, start of the period, statistics"""


def _sums(
    connection: Connection, series_ids: Sequence[int], window: Window, resolution: Resolution
) -> _Found:
    columns, slot, seconds = resolution.table.c, resolution.slot, resolution.seconds
    series_id, where = columns.series_id, _inside(series_ids, window, resolution)
    if window.period <= seconds:
        values = (columns["count"], columns["sum"], columns.minimum, columns.maximum)
        statement = select(series_id, slot, *values).where(*where)
        origin, length = 0, seconds
    else:
        # Counted in slots: seconds outgrow PostgreSQL's integers in 2038.
        number = (slot - window.start // seconds) // (window.period // seconds)
        statement = (
            select(
                series_id,
                number,
                func.sum(columns["count"]),
                func.sum(columns["sum"]),
                func.min(columns.minimum),
                func.max(columns.maximum),
            )
            .where(*where)
            .group_by(series_id, number)
        )
        origin, length = window.start, window.period
    for found_id, position, count, total, minimum, maximum in connection.execute(statement):
        statistics = of_set(count, total, minimum, maximum)
        statistics.sum = total
        yield found_id, window.start_of(origin + int(position) * length), statistics


def _sketches(
    connection: Connection, series_ids: Sequence[int], window: Window, resolution: Resolution
) -> _Found:
    where = _inside(series_ids, window, resolution)
    statement = select(resolution.table).where(*where).limit(MAX_SKETCHES + 1)
    for number, row in enumerate(connection.execute(statement).mappings()):
        if number == MAX_SKETCHES:
            raise LimitExceeded(f"More than {MAX_SKETCHES} minutes are in the range asked for.")
        start = window.start_of(row[resolution.slot.name] * resolution.seconds)
        yield row["series_id"], start, statistics_of(row)


def _inside(
    series_ids: Sequence[int], window: Window, resolution: Resolution
) -> tuple[ColumnElement[bool], ...]:
    # Rounded up: a minute that began before the window is not in it.
    start, end = -(-window.start // resolution.seconds), -(-window.end // resolution.seconds)
    return (
        resolution.table.c.series_id.in_(series_ids),
        resolution.slot >= start,
        resolution.slot < end,
    )


_Item = TypeVar("_Item", int, str)


def _chunks(items: Sequence[_Item], size: int = _CHUNK_SIZE) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
