"""GetMetricData: reads many metrics by page, with metric math over them."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import LimitExceeded
from sagehen.frame.context import RequestContext
from sagehen.services.monitoring.cloudwatch.errors import invalid_token, over_limit, refused
from sagehen.services.monitoring.cloudwatch.expressions.evaluator import Evaluator
from sagehen.services.monitoring.cloudwatch.expressions.values import Points
from sagehen.services.monitoring.cloudwatch.labels import check_labels, label_of
from sagehen.services.monitoring.cloudwatch.metrics import FINEST_PERIOD, value, whole_second
from sagehen.services.monitoring.cloudwatch.queries import Query, read_queries
from sagehen.services.monitoring.cloudwatch.sample_reads import Window, find, read

__all__ = ["get_metric_data"]

MAX_DATAPOINTS = 100_800
MAX_POINTS_OF_EXPRESSIONS = 500_000
"""of all queries of a request with expressions, as all are in memory at once"""


class _Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Where a page begins: the query, and the second before."""

    query: int = 0
    second: int | None = None


def get_metric_data(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Periods begin at the start time, in whole minutes or, if shorter, tens of seconds."""
    start, end = _range(params)
    check_labels(params)
    _check_accounts(call, params)
    queries = [
        replace(query, period=max(query.period, FINEST_PERIOD))
        for query in read_queries(params["MetricDataQueries"])
    ]
    with call.database.read() as connection:
        reading = _Reading(connection, start, end)
        if any(query.expression is not None for query in queries):
            return _unpaged(call, reading, queries, params)
        return _page(call, reading, queries, params)


def _check_accounts(call: RequestContext, params: dict[str, Any]) -> None:
    own = call.settings.account_id
    for query in params["MetricDataQueries"]:
        if query.get("AccountId", own) != own:
            raise refused(
                f"The query '{query['Id'][:64]}' asks for metrics of the account "
                f"{query['AccountId'][:64]}; Sagehen has those of {own} only."
            )


def _range(params: dict[str, Any]) -> tuple[int, int]:
    start, end = whole_second(params["StartTime"]), whole_second(params["EndTime"])
    if start == end:
        raise refused("The parameter StartTime must not equal parameter EndTime.")
    if start > end:
        raise refused("The parameter EndTime must be greater than StartTime.")
    return int(start.timestamp()), int(end.timestamp())


class _Reading:
    """Reads the points of metrics in the requested time."""

    def __init__(self, connection: Connection, start: int, end: int) -> None:
        self._connection = connection
        self._start = start
        self._end = end

    def read(self, query: Query) -> Points:
        """Raises AwsError."""
        numbers = find(self._connection, query.metric)
        ids = [series_id for unit, series_id in numbers.items() if query.unit in (None, unit)]
        if not ids:
            return {}
        window = self._window(query.period)
        try:
            slots = read(self._connection, ids, window, query.needs_distribution)
        except LimitExceeded as error:
            raise over_limit(f"{error} Ask for a shorter one.") from error
        values = {start: value(query.statistic, found) for start, found in slots.items()}
        return {start: number for start, number in sorted(values.items()) if number is not None}

    def grid(self, period: int) -> range:
        return range(*self._window(period))

    def count(self, queries: Sequence[Query]) -> int:
        """Returns an upper bound of the number of points."""
        return sum(len(self.grid(query.period)) for query in queries)

    def _window(self, period: int) -> Window:
        return Window.covering(self._start, self._end, period)


def _unpaged(
    call: RequestContext, reading: _Reading, queries: list[Query], params: dict[str, Any]
) -> dict[str, Any]:
    count = reading.count(queries)
    if count > MAX_POINTS_OF_EXPRESSIONS:
        raise refused(
            f"The queries ask for {count:,} datapoints; with expressions among them it can be "
            f"{MAX_POINTS_OF_EXPRESSIONS:,}. Increase Period, or ask for a shorter time."
        )
    descending = _is_descending(params)
    evaluator = Evaluator(queries, reading.read, reading.grid)
    results = [
        _result(
            query.id,
            label_of(series.label, query, series.points, call.arns),
            _ordered(series.points, descending),
        )
        for query in queries
        if query.is_returned
        for series in evaluator.series(query)
    ]
    if sum(len(result["Values"]) for result in results) > _limit(params):
        raise refused(
            "The result has more than MaxDatapoints datapoints, and with an expression it has no "
            "second page. Increase Period, or ask for a shorter time."
        )
    return {"MetricDataResults": results, "Messages": []}


def _page(
    call: RequestContext, reading: _Reading, queries: list[Query], params: dict[str, Any]
) -> dict[str, Any]:
    cursor = _read_token(params.get("NextToken"), len(queries))
    descending, remaining = _is_descending(params), _limit(params)
    results = []
    for number, query in _from(cursor, queries):
        found = reading.read(query)
        label, points = label_of(query.label, query, found, call.arns), _ordered(found, descending)
        if number == cursor.query and cursor.second is not None:
            points = [point for point in points if _is_after(point[0], cursor.second, descending)]
        results.append(_result(query.id, label, points[:remaining]))
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


def _is_after(second: int, other: int, descending: bool) -> bool:
    return second < other if descending else second > other


def _ordered(points: Points, descending: bool) -> list[tuple[int, float]]:
    return sorted(points.items(), reverse=descending)


def _result(query_id: str, label: str, points: list[tuple[int, float]]) -> dict[str, Any]:
    return {
        "Id": query_id,
        "Label": label,
        "Timestamps": [datetime.fromtimestamp(second, UTC) for second, _ in points],
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
