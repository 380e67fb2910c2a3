"""GetMetricData: reads many metrics by page, with arithmetic over them."""

import base64
import binascii
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import LimitExceeded
from sagehen.frame.context import RequestContext
from sagehen.frame.statistics import Series
from sagehen.services.monitoring.cloudwatch.errors import invalid_token, over_limit, refused
from sagehen.services.monitoring.cloudwatch.expressions import Points, evaluate
from sagehen.services.monitoring.cloudwatch.metrics import (
    STATISTICS,
    Statistic,
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

__all__ = ["Query", "get_metric_data", "read_queries"]

MAX_QUERIES = 500
_ID = re.compile(r"[a-z][a-zA-Z0-9_]{0,254}")
_NOWHERE = Series("", "", ())


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query for a metric or an expression over other queries."""

    id: str
    label: str
    is_returned: bool
    period: int
    """minutes"""
    metric: Series = _NOWHERE
    """its unit is ignored"""
    unit: str | None = None
    """None for values of any unit"""
    statistic: Statistic = "Average"
    expression: str | None = None

    @property
    def is_percentile(self) -> bool:
        return self.statistic not in STATISTICS


def read_queries(params: dict[str, Any]) -> list[Query]:
    """Raises AwsError for invalid or too many queries."""
    entries = params["MetricDataQueries"]
    if len(entries) > MAX_QUERIES:
        raise refused(
            f"The collection MetricDataQueries must not have a size greater than {MAX_QUERIES}."
        )
    shortest = min(
        (entry["MetricStat"]["Period"] // 60 for entry in entries if "MetricStat" in entry),
        default=1,
    )
    for number, entry in enumerate(entries, 1):
        if "MetricStat" not in entry and "Expression" not in entry:
            # CloudWatch's own message ends with a newline, too.
            raise refused(
                f"The parameter MetricDataQueries.member.{number}.MetricStat is required.\n"
            )
    queries = [_query(entry, max(shortest, 1)) for entry in entries]
    if len({query.id for query in queries}) < len(queries):
        raise refused("The values for parameter id in MetricDataQueries are not unique.")
    if not any(query.is_returned for query in queries):
        raise refused("At least one query in MetricDataQueries must have ReturnData set to true.")
    return queries


def _query(entry: dict[str, Any], shortest: int) -> Query:
    query_id = entry["Id"]
    if not _ID.fullmatch(query_id):
        raise refused(
            f"The value {query_id[:64]} for parameter MetricDataQueries.Id is invalid: it begins "
            "with a lowercase letter, and has letters, digits and underscores."
        )
    if "MetricStat" in entry and "Expression" in entry:
        raise refused(
            f"The query '{query_id}' must have either MetricStat or Expression, and not both."
        )
    if "Expression" in entry:
        return Query(
            id=query_id,
            label=entry.get("Label", query_id),
            is_returned=entry.get("ReturnData", True),
            period=period_minutes(entry["Period"]) if "Period" in entry else shortest,
            expression=entry["Expression"],
        )
    return _of_metric(query_id, entry)


def _of_metric(query_id: str, entry: dict[str, Any]) -> Query:
    metric_stat = entry["MetricStat"]
    metric = metric_stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if name not in metric:
            raise refused(f"The query '{query_id}' must have MetricStat.Metric.{name}.")
    if metric_stat["Stat"] not in STATISTICS and not is_percentile(metric_stat["Stat"]):
        raise refused(
            f"The value {metric_stat['Stat'][:64]} for parameter MetricDataQueries.MetricStat.Stat "
            f"is invalid: Sagehen has {', '.join(STATISTICS)} and percentiles from p0 to p100."
        )
    path = f"MetricDataQueries.{query_id}.MetricStat.Metric.Dimensions"
    return Query(
        id=query_id,
        label=entry.get("Label", metric["MetricName"]),
        is_returned=entry.get("ReturnData", True),
        period=period_minutes(metric_stat["Period"]),
        metric=Series(
            metric["Namespace"],
            metric["MetricName"],
            read_dimensions(metric.get("Dimensions", ()), path),
        ),
        unit=metric_stat.get("Unit"),
        statistic=metric_stat["Stat"],
    )


MAX_DATAPOINTS = 100_800
MAX_POINTS_OF_EXPRESSIONS = 500_000
"""of all queries of a request with expressions, as all are in memory at once"""


class _Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Where a page begins: the query, and the minute before."""

    query: int = 0
    minute: int | None = None


def get_metric_data(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Periods begin at the start time, in whole minutes."""
    start, end = _range(params)
    queries = read_queries(params)
    with call.database.read() as connection:
        reading = _Reading(connection, queries, start, end)
        if any(query.expression is not None for query in queries):
            return _unpaged(reading, queries, params)
        return _page(reading, queries, params)


def _range(params: dict[str, Any]) -> tuple[int, int]:
    start, end = whole_second(params["StartTime"]), whole_second(params["EndTime"])
    if start == end:
        raise refused("The parameter StartTime must not equal parameter EndTime.")
    if start > end:
        raise refused("The parameter EndTime must be greater than StartTime.")
    return int(start.timestamp() // 60), math.ceil(end.timestamp() / 60)


class _Reading:
    """Reads the points of each query at most once."""

    def __init__(self, connection: Connection, queries: list[Query], start: int, end: int) -> None:
        self._connection = connection
        self._queries = {query.id: query for query in queries}
        self._start = start
        self._end = end
        self._points: dict[str, Points] = {}
        self._under_way: set[str] = set()

    def points(self, query_id: str) -> Points:
        """Raises AwsError for an unknown query or a cycle."""
        if query_id in self._points:
            return self._points[query_id]
        query = self._queries.get(query_id)
        if query is None:
            raise refused(f"Error in expression: there is no query with the Id '{query_id[:64]}'.")
        if query_id in self._under_way:
            raise refused(f"Error in expression '{query_id}': it needs its own result.")
        self._under_way.add(query_id)
        self._points[query_id] = self._evaluate(query) if query.expression else self.read(query)
        return self._points[query_id]

    def read(self, query: Query) -> Points:
        """Reads without caching."""
        window = Window(self._start, self._end, query.period)
        numbers = find(self._connection, query.metric)
        ids = [series_id for unit, series_id in numbers.items() if query.unit in (None, unit)]
        if not ids:
            return {}
        reading = read_sketches if query.is_percentile else read
        try:
            slots = reading(self._connection, ids, window)
        except LimitExceeded as error:
            raise over_limit(f"{error} Ask for a shorter one.") from error
        values = {slot: value(query.statistic, statistics) for slot, statistics in slots.items()}
        return {
            window.start + slot * window.period: number
            for slot, number in values.items()
            if number is not None
        }

    def count(self) -> int:
        """Returns an upper bound of the number of points."""
        minutes = self._end - self._start
        return sum(-(-minutes // query.period) for query in self._queries.values())

    def _evaluate(self, query: Query) -> Points:
        grid = range(self._start, self._end, query.period)
        return evaluate(query.id, query.expression or "", self.points, self._of_metrics, grid)

    def _of_metrics(self) -> list[Points]:
        return [
            self.points(query.id) for query in self._queries.values() if query.expression is None
        ]


def _unpaged(reading: _Reading, queries: list[Query], params: dict[str, Any]) -> dict[str, Any]:
    if reading.count() > MAX_POINTS_OF_EXPRESSIONS:
        raise refused(
            f"The queries ask for {reading.count():,} datapoints; with expressions among them it "
            f"can be {MAX_POINTS_OF_EXPRESSIONS:,}. Increase Period, or ask for a shorter time."
        )
    descending = _is_descending(params)
    returned = [query for query in queries if query.is_returned]
    results = [_result(query, _ordered(reading.points(query.id), descending)) for query in returned]
    if sum(len(result["Values"]) for result in results) > _limit(params):
        raise refused(
            "The result has more than MaxDatapoints datapoints, and with an expression it has no "
            "second page. Increase Period, or ask for a shorter time."
        )
    return {"MetricDataResults": results, "Messages": []}


def _page(reading: _Reading, queries: list[Query], params: dict[str, Any]) -> dict[str, Any]:
    cursor = _read_token(params.get("NextToken"), len(queries))
    descending, remaining = _is_descending(params), _limit(params)
    results = []
    for number, query in _from(cursor, queries):
        points = _ordered(reading.read(query), descending)
        if number == cursor.query and cursor.minute is not None:
            points = [point for point in points if _is_after(point[0], cursor.minute, descending)]
        results.append(_result(query, points[:remaining]))
        if len(points) > remaining:
            results[-1]["StatusCode"] = "PartialData"
            last = points[remaining - 1][0] if remaining else None
            return _answer(results, _Cursor(number, last))
        remaining -= len(points)
        if not remaining and number + 1 < len(queries):
            return _answer(results, _Cursor(number + 1))
    return {"MetricDataResults": results, "Messages": []}


def _from(cursor: _Cursor, queries: list[Query]) -> Iterator[tuple[int, Query]]:
    for number in range(cursor.query, len(queries)):
        if queries[number].is_returned:
            yield number, queries[number]


def _is_after(minute: int, other: int, descending: bool) -> bool:
    return minute < other if descending else minute > other


def _ordered(points: Points, descending: bool) -> list[tuple[int, float]]:
    return sorted(points.items(), reverse=descending)


def _result(query: Query, points: list[tuple[int, float]]) -> dict[str, Any]:
    return {
        "Id": query.id,
        "Label": query.label,
        "Timestamps": [datetime.fromtimestamp(minute * 60, UTC) for minute, _ in points],
        "Values": [number for _, number in points],
        "StatusCode": "Complete",
    }


def _is_descending(params: dict[str, Any]) -> bool:
    return bool(params.get("ScanBy", "TimestampDescending") == "TimestampDescending")


def _limit(params: dict[str, Any]) -> int:
    limit = params.get("MaxDatapoints", MAX_DATAPOINTS)
    if not 1 <= limit <= MAX_DATAPOINTS:
        raise refused(f"The parameter MaxDatapoints must be between 1 and {MAX_DATAPOINTS}.")
    return int(limit)


def _answer(results: list[dict[str, Any]], cursor: _Cursor) -> dict[str, Any]:
    token = base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
    return {"MetricDataResults": results, "Messages": [], "NextToken": token}


def _read_token(token: str | None, queries: int) -> _Cursor:
    if token is None:
        return _Cursor()
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(token.encode()), type=_Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid_token() from None
    if not 0 <= cursor.query < queries:
        raise invalid_token()
    return cursor
