"""The functions of expressions.

Each takes its evaluated arguments; options such as REPEAT come as text. A function of one series
is applied to each element of an array.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from sagehen.services.monitoring.cloudwatch.expressions.operators import if_
from sagehen.services.monitoring.cloudwatch.expressions.values import (
    ExpressionError,
    Points,
    TimeSeries,
    Value,
    finite,
    known,
    map_points,
    number_of,
)

__all__ = ["FUNCTIONS", "NOT_BUILT", "FunctionScope"]


class FunctionScope(NamedTuple):
    """The parts of the request that functions need."""

    grid: Callable[[int], Sequence[int]]
    """the seconds at which periods of a length begin"""
    period: int
    """of the query that is evaluated, in seconds"""
    metrics: Callable[[], Sequence[tuple[str, TimeSeries]]]
    """the request's metrics with the Ids of their queries"""
    spend: Callable[[int], None]
    """counts datapoints that a function is about to make; raises ExpressionError over the bound"""


Arguments = Sequence[Value]
Function = Callable[[FunctionScope, Arguments], Value]

NOT_BUILT = frozenset(
    {
        "ANOMALY_DETECTION_BAND",
        "DB_PERF_INSIGHTS",
        "INSIGHT_RULE_METRIC",
        "LAMBDA",
        "SEARCH",
        "SERVICE_QUOTA",
    }
)


def _aggregate(act: Callable[[Sequence[float], int], float]) -> Function:
    """Aggregates an array point by point, and one series to a number. `act` takes the values and
    the number of elements."""

    def aggregate(_: FunctionScope, arguments: Arguments) -> Value:
        (value,) = arguments
        if isinstance(value, float):
            return value
        if isinstance(value, TimeSeries):
            values = list(value.points.values())
            return number_of(finite(act, values, len(values))) if values else math.nan
        series = _array(value)
        by_second: dict[int, list[float]] = {}
        for element in series:
            for second, number in element.points.items():
                by_second.setdefault(second, []).append(number)
        results = {
            second: finite(act, by_second[second], len(series)) for second in sorted(by_second)
        }
        return _model(series)._replace(points=known(results))

    return aggregate


def _deviation(values: Sequence[float]) -> float:
    """Of the population. `statistics.pstdev` works with fractions, which takes far longer."""
    mean = math.fsum(values) / len(values)
    differences = [abs(value - mean) for value in values]
    # Squares of the largest numbers overflow.
    if not (largest := max(differences)):
        return 0.0
    squares = math.fsum((difference / largest) ** 2 for difference in differences)
    return largest * math.sqrt(squares / len(values))


def _each(act: Callable[[TimeSeries], TimeSeries]) -> Function:
    def each(_: FunctionScope, arguments: Arguments) -> Value:
        (value,) = arguments
        return [act(series) for series in value] if isinstance(value, list) else act(_series(value))

    return each


def _pointwise(act: Callable[[float], float]) -> Function:
    def pointwise(scope: FunctionScope, arguments: Arguments) -> Value:
        (value,) = arguments
        if isinstance(value, float):
            return number_of(finite(act, value))
        return _each(lambda series: map_points(series, act))(scope, arguments)

    return pointwise


def _steps(act: Callable[[float, int], float]) -> Function:
    """`act` takes the difference to the point before, and the seconds between."""

    def steps(series: TimeSeries) -> TimeSeries:
        results = {
            second: finite(act, number - last_number, second - last_second)
            for (last_second, last_number), (second, number) in pairwise(
                sorted(series.points.items())
            )
        }
        return series._replace(points=known(results))

    return _each(steps)


def _of_time(act: Callable[[datetime], float]) -> Function:
    def of_time(series: TimeSeries) -> TimeSeries:
        points = {
            second: float(act(datetime.fromtimestamp(second, UTC))) for second in series.points
        }
        return series._replace(points=points)

    return _each(of_time)


def _running_sum(series: TimeSeries) -> TimeSeries:
    points: Points = {}
    total = 0.0
    for second, number in sorted(series.points.items()):
        total += number
        if math.isfinite(total):
            points[second] = total
    return series._replace(points=points)


def _fill(scope: FunctionScope, arguments: Arguments) -> Value:
    value, filling = arguments
    if isinstance(value, list):
        return [_filled(scope, series, filling) for series in value]
    return _filled(scope, _series(value), filling)


def _filled(scope: FunctionScope, series: TimeSeries, filling: Value) -> TimeSeries:
    grid = scope.grid(series.period)
    scope.spend(len(grid))
    points = dict(series.points)
    if isinstance(filling, (float, TimeSeries)):
        for second in grid:
            number = filling if isinstance(filling, float) else filling.points.get(second)
            if second not in points and number is not None and not math.isnan(number):
                points[second] = number
    elif filling == "REPEAT":
        last: float | None = None
        for second in grid:
            last = points.get(second, last)
            if last is not None:
                points[second] = last
    elif filling == "LINEAR":
        _fill_lines(points, grid)
    else:
        raise ExpressionError("FILL takes a number, a time series, REPEAT or LINEAR")
    return series._replace(points=dict(sorted(points.items())))


def _fill_lines(points: Points, grid: Sequence[int]) -> None:
    real = sorted(points)
    for second in grid:
        after = bisect_left(real, second)
        if 0 < after < len(real) and second != real[after]:
            start, end = real[after - 1], real[after]
            share = (second - start) / (end - start)
            points[second] = points[start] * (1 - share) + points[end] * share


def _if(_: FunctionScope, arguments: Arguments) -> Value:
    return if_(arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else None)


def _metrics(scope: FunctionScope, arguments: Arguments) -> Value:
    part = _text(arguments[0], "METRICS") if arguments else ""
    return [series for query_id, series in scope.metrics() if part in query_id]


_KEYS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AVG": statistics.fmean,
    "MIN": min,
    "MAX": max,
    "SUM": math.fsum,
}


def _sort(_: FunctionScope, arguments: Arguments) -> Value:
    series = _array(arguments[0])
    key, order = (_text(argument, "SORT") for argument in arguments[1:3])
    if key not in _KEYS or order not in ("ASC", "DESC"):
        raise ExpressionError("SORT takes AVG, MIN, MAX or SUM, then ASC or DESC")
    # Series without points come last in either order.
    full = [one for one in series if one.points]
    ordered = sorted(full, key=lambda one: _key(key, one), reverse=order == "DESC")
    ordered += [one for one in series if not one.points]
    return ordered[: _count(arguments[3])] if len(arguments) > 3 else ordered


def _key(key: str, series: TimeSeries) -> float:
    result = finite(_KEYS[key], list(series.points.values()))
    return math.inf if result is None else result


def _slice(_: FunctionScope, arguments: Arguments) -> Value:
    start = _count(arguments[1])
    end = _count(arguments[2]) if len(arguments) > 2 else None
    return _array(arguments[0])[start:end]


def _first(_: FunctionScope, arguments: Arguments) -> Value:
    return _array(arguments[0])[0]


def _last(_: FunctionScope, arguments: Arguments) -> Value:
    return _array(arguments[0])[-1]


def _remove_empty(_: FunctionScope, arguments: Arguments) -> Value:
    return [series for series in _array(arguments[0], allow_empty=True) if series.points]


def _metric_count(_: FunctionScope, arguments: Arguments) -> Value:
    return float(len(_array(arguments[0], allow_empty=True)))


def _time_series(scope: FunctionScope, arguments: Arguments) -> Value:
    (number,) = arguments
    if not isinstance(number, float):
        raise ExpressionError("TIME_SERIES takes a number")
    grid = scope.grid(scope.period)
    scope.spend(len(grid))
    points = {} if math.isnan(number) else dict.fromkeys(grid, number)
    return TimeSeries("", points, scope.period)


def _period(_: FunctionScope, arguments: Arguments) -> Value:
    return float(_series(arguments[0]).period)


def _array(value: Value, allow_empty: bool = False) -> list[TimeSeries]:
    if not isinstance(value, list):
        raise ExpressionError("a function of arrays has a single argument that is none")
    if not value and not allow_empty:
        raise ExpressionError("an array has no time series")
    return value


def _model(series: Sequence[TimeSeries]) -> TimeSeries:
    """Returns the series whose period the aggregate has."""
    return max(series, key=lambda one: one.period)


def _series(value: Value) -> TimeSeries:
    if not isinstance(value, TimeSeries):
        raise ExpressionError("a function of time series has an argument that is none")
    return value


def _text(value: Value, function: str) -> str:
    if not isinstance(value, str):
        raise ExpressionError(f"{function} has an argument that is no text or option")
    return value


def _count(value: Value) -> int:
    if not isinstance(value, float) or not value.is_integer() or value < 0:
        raise ExpressionError("a position is a whole number from 0")
    return int(value)


FUNCTIONS: Mapping[str, tuple[int, int, Function]] = {
    "ABS": (1, 1, _pointwise(abs)),
    "AVG": (1, 1, _aggregate(lambda values, count: math.fsum(values) / count)),
    "CEIL": (1, 1, _pointwise(lambda number: float(math.ceil(number)))),
    "DATAPOINT_COUNT": (1, 1, _aggregate(lambda values, _: float(len(values)))),
    "DATE": (1, 1, _of_time(lambda moment: moment.day)),
    "DAY": (1, 1, _of_time(lambda moment: moment.isoweekday())),
    "DIFF": (1, 1, _steps(lambda difference, _: difference)),
    "DIFF_TIME": (1, 1, _steps(lambda _, seconds: float(seconds))),
    "EPOCH": (1, 1, _of_time(lambda moment: moment.timestamp())),
    "FILL": (2, 2, _fill),
    "FIRST": (1, 1, _first),
    "FLOOR": (1, 1, _pointwise(lambda number: float(math.floor(number)))),
    "HOUR": (1, 1, _of_time(lambda moment: moment.hour)),
    "IF": (2, 3, _if),
    "LAST": (1, 1, _last),
    "LOG": (1, 1, _pointwise(math.log)),
    "LOG10": (1, 1, _pointwise(math.log10)),
    "MAX": (1, 1, _aggregate(lambda values, _: max(values))),
    "METRICS": (0, 1, _metrics),
    "METRIC_COUNT": (1, 1, _metric_count),
    "MIN": (1, 1, _aggregate(lambda values, _: min(values))),
    "MINUTE": (1, 1, _of_time(lambda moment: moment.minute)),
    "MONTH": (1, 1, _of_time(lambda moment: moment.month)),
    "PERIOD": (1, 1, _period),
    "RATE": (1, 1, _steps(lambda difference, seconds: difference / seconds)),
    "REMOVE_EMPTY": (1, 1, _remove_empty),
    "RUNNING_SUM": (1, 1, _each(_running_sum)),
    "SLICE": (2, 3, _slice),
    "SORT": (3, 4, _sort),
    "STDDEV": (1, 1, _aggregate(lambda values, _: _deviation(values))),
    "SUM": (1, 1, _aggregate(lambda values, _: math.fsum(values))),
    "TIME_SERIES": (1, 1, _time_series),
    "YEAR": (1, 1, _of_time(lambda moment: moment.year)),
}
"""by name: the least and the most arguments, and the function"""
