"""Reads the datapoints of many alarms with few statements."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sagehen.base.errors import LimitExceeded
from sagehen.frame.statistics import Statistics
from sagehen.services.monitoring.alarms.evaluation.evaluate import window_of
from sagehen.services.monitoring.alarms.evaluation.reasons import Datapoint
from sagehen.services.monitoring.cloudwatch.expressions.evaluator import Evaluator
from sagehen.services.monitoring.cloudwatch.expressions.values import Points
from sagehen.services.monitoring.cloudwatch.metrics import value
from sagehen.services.monitoring.cloudwatch.queries import Query, metric_query, read_queries
from sagehen.services.monitoring.cloudwatch.sample_reads import (
    Slots,
    Window,
    find_all,
    read_each,
)
from sagehen.wire.errors import AwsError

__all__ = ["AlarmQueries", "queries_of", "read_datapoints"]

MAX_EXPRESSION_POINTS = 500_000
"""that one alarm's operators and functions may take: a few tenths of a second"""


class AlarmQueries(NamedTuple):
    """A request for the datapoints of one alarm."""

    definition: Mapping[str, Any]
    queries: Sequence[Query]
    digests: tuple[str, ...]
    """of the queries' metrics; empty for expressions"""


def queries_of(definition: Mapping[str, Any]) -> AlarmQueries:
    if "Metrics" in definition:
        queries = read_queries(definition["Metrics"], "Metrics")
    else:
        queries = [metric_query(definition)]
    digests = tuple("" if query.expression else query.metric.metric for query in queries)
    return AlarmQueries(definition, queries, digests)


class _Group(NamedTuple):
    """Reads that one statement can do: of the same period, up to the same end."""

    period: int
    end: int
    needs_distribution: bool


_Read = Mapping[_Group, Mapping[int, Slots]]
"""periods by series"""


def read_datapoints(
    connection: Connection, alarms: Mapping[str, AlarmQueries], now: float
) -> Callable[[str], list[Datapoint] | AwsError]:
    """Returns a function of an alarm's name: the datapoints of its evaluation range, newest first,
    or the error where they cannot be had."""
    windows = {name: window_of(alarm.definition, now) for name, alarm in alarms.items()}
    digests = {digest for alarm in alarms.values() for digest in alarm.digests if digest}
    ids = find_all(connection, digests)
    starts: dict[_Group, int] = {}
    series: dict[_Group, set[int]] = {}
    for name, alarm in alarms.items():
        for query, digest in zip(alarm.queries, alarm.digests, strict=True):
            if digest:
                group = _group(query, windows[name])
                starts[group] = min(starts.get(group, windows[name].start), windows[name].start)
                series.setdefault(group, set()).update(_ids(ids, query, digest))
    read = _read_groups(connection, starts, series)
    return lambda name: _datapoints(alarms[name], windows[name], ids, read)


def _group(query: Query, window: Window) -> _Group:
    return _Group(query.period, window.end, query.needs_distribution)


def _ids(ids: Mapping[str, Mapping[str, int]], query: Query, digest: str) -> Iterable[int]:
    by_unit = ids.get(digest, {})
    return [number for unit, number in by_unit.items() if query.unit in (None, unit)]


def _read_groups(
    connection: Connection, starts: Mapping[_Group, int], series: Mapping[_Group, set[int]]
) -> _Read:
    read: dict[_Group, Mapping[int, Slots]] = {}
    for group, start in starts.items():
        window = Window(start, group.end, group.period)
        try:
            read[group] = read_each(
                connection, sorted(series[group]), window, group.needs_distribution
            )
        except LimitExceeded:
            continue  # the alarms of this group are told
    return read


def _datapoints(
    alarm: AlarmQueries, window: Window, ids: Mapping[str, Mapping[str, int]], read: _Read
) -> list[Datapoint] | AwsError:
    found: dict[str, Slots] = {}
    for query, digest in zip(alarm.queries, alarm.digests, strict=True):
        if digest:
            group = _group(query, window)
            if group not in read:
                return AwsError("LimitExceeded", "The metric has too many samples to read.", 400)
            found[query.id] = _merged(read[group], _ids(ids, query, digest))
    starts = range(window.end - window.period, window.start - 1, -window.period)
    if len(alarm.queries) == 1 and alarm.digests[0]:
        (query,) = alarm.queries
        slots = found[query.id]
        return [_datapoint(query, start, slots.get(start)) for start in starts]
    try:
        points = _expression(alarm.queries, found, window)
    except AwsError as error:
        return error
    return [Datapoint(start, points.get(start)) for start in starts]


def _merged(read: Mapping[int, Slots], series_ids: Iterable[int]) -> Slots:
    merged: Slots = {}
    for number in series_ids:
        for start, statistics in read.get(number, {}).items():
            known = merged.get(start)
            if known is None:
                merged[start] = statistics
            else:
                # Not in place: other alarms read these, too.
                merged[start] = known.copy()
                merged[start].merge(statistics)
    return merged


def _datapoint(query: Query, start: int, statistics: Statistics | None) -> Datapoint:
    if statistics is None:
        return Datapoint(start, None)
    number = value(query.statistic, statistics)
    return Datapoint(start, number, statistics.count if number is not None else None)


def _expression(queries: Sequence[Query], found: Mapping[str, Slots], window: Window) -> Points:
    """Raises AwsError."""

    def read(query: Query) -> Points:
        values = {
            start: value(query.statistic, statistics)
            for start, statistics in sorted(found[query.id].items())
            if window.start <= start < window.end
        }
        return {start: number for start, number in values.items() if number is not None}

    def grid(period: int) -> range:
        return range(window.start, window.end, period)

    evaluator = Evaluator(queries, read, grid, MAX_EXPRESSION_POINTS)
    (returned,) = (query for query in queries if query.is_returned)
    (series,) = evaluator.series(returned)
    return series.points
