"""Evaluates the queries of one request or alarm."""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial

from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.services.monitoring.cloudwatch.expressions.functions import (
    FUNCTIONS,
    NOT_BUILT,
    FunctionScope,
)
from sagehen.services.monitoring.cloudwatch.expressions.operators import combine, negate
from sagehen.services.monitoring.cloudwatch.expressions.parser import (
    Array,
    Binary,
    Call,
    Name,
    Negation,
    Node,
    Number,
    Text,
    parse,
)
from sagehen.services.monitoring.cloudwatch.expressions.values import (
    ExpressionError,
    Points,
    TimeSeries,
    Value,
    expression_error,
)
from sagehen.services.monitoring.cloudwatch.queries import Query

__all__ = ["Evaluator", "Grid", "check_expressions"]

MAX_POINTS = 3_000_000
"""that the operators and functions of a request take: a second or two"""

_INSIGHTS = re.compile(r"\s*select\s+\w+\s*\(", re.IGNORECASE)
"""start of a Metrics Insights query; a query's own Id may be `select`"""

Grid = Callable[[int], Sequence[int]]
"""returns the seconds at which periods of a length begin"""


class _Work:
    """Bounds time and memory: operators repeat, and arrays of arrays multiply."""

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self._points = 0

    def spend(self, points: int) -> None:
        """Raises ExpressionError over the bound."""
        self._points += points
        if self._points > self._max_points:
            raise ExpressionError(
                f"the expressions work on more than {self._max_points:,} datapoints. Increase "
                "Period, ask for a shorter time, or leave functions out"
            )

    def take(self, value: Value) -> Value:
        """Counts an operand or argument."""
        if isinstance(value, list):
            self.spend(len(value) + sum(len(series.points) for series in value))
        else:
            self.spend(len(value.points) if isinstance(value, TimeSeries) else 1)
        return value


class Evaluator:
    """Evaluates each query at most once."""

    def __init__(
        self,
        queries: Sequence[Query],
        read: Callable[[Query], Points],
        grid: Grid,
        max_points: int | None = None,
    ) -> None:
        """Args:
        read: returns the points of a metric.
        max_points: that operators and functions may take; None for MAX_POINTS.
        """
        self._queries = {query.id: query for query in queries}
        self._read = read
        self._grid = grid
        self._values: dict[str, Value] = {}
        self._under_way: set[str] = set()
        self._work = _Work(MAX_POINTS if max_points is None else max_points)

    def series(self, query: Query) -> list[TimeSeries]:
        """Returns the query's time series: several if its expression is an array.

        Raises:
            AwsError: the expression is wrong, names an unknown query or needs itself.
        """
        value = self._value(query.id, query.id)
        if isinstance(value, list):
            return [one._replace(label=f"{query.label} {one.label}".strip()) for one in value]
        if isinstance(value, float):
            grid = () if math.isnan(value) else self._grid(query.period)
            return [TimeSeries(query.label, dict.fromkeys(grid, value), query.period)]
        assert isinstance(value, TimeSeries)
        return [value._replace(label=query.label)]

    def value(self, query: Query) -> Value:
        """Returns what the query is before a number becomes a time series. Raises AwsError."""
        return self._value(query.id, query.id)

    def _value(self, query_id: str, asking_id: str) -> Value:
        if query_id in self._values:
            return self._values[query_id]
        query = self._queries.get(query_id)
        if query is None:
            raise expression_error(asking_id, f"there is no query with the Id '{query_id[:64]}'")
        if query_id in self._under_way:
            raise expression_error(query_id, "it needs its own result")
        self._under_way.add(query_id)
        if query.expression is None:
            value: Value = TimeSeries(query.label, self._read(query), query.period)
        else:
            value = self._evaluate(query, query.expression)
        self._values[query_id] = value
        return value

    def _evaluate(self, query: Query, expression: str) -> Value:
        if _INSIGHTS.match(expression):
            raise expression_error(
                query.id,
                "queries of Metrics Insights (SELECT) are not implemented by Sagehen; ask for each "
                "metric by MetricStat, and add them up by an expression such as SUM(METRICS())",
            )
        scope = FunctionScope(self._grid, query.period, self._metrics, self._work.spend)
        named = partial(self._value, asking_id=query.id)
        try:
            value = _Evaluation(query, scope, named, self._work).of(parse(expression))
            if isinstance(value, str):
                raise ExpressionError(f"its result is the text '{value[:64]}'")
        except ExpressionError as error:
            raise expression_error(query.id, error) from None
        except RecursionError:
            raise expression_error(query.id, "it needs too many other expressions") from None
        return value

    def _metrics(self) -> list[tuple[str, TimeSeries]]:
        found = []
        for query in self._queries.values():
            if query.expression is None:
                value = self._value(query.id, query.id)
                assert isinstance(value, TimeSeries)
                found.append((query.id, value))
        return found


class _Evaluation:
    """Evaluates one expression."""

    def __init__(
        self, query: Query, scope: FunctionScope, named: Callable[[str], Value], work: _Work
    ) -> None:
        self._query = query
        self._scope = scope
        self._named = named
        self._work = work

    def of(self, node: Node) -> Value:
        match node:
            case Number(value):
                return value
            case Text(text):
                return text
            case Name(name):
                # Options such as REPEAT are in upper case, Ids begin with a lowercase letter.
                return name if name[0].isupper() else self._named(name)
            case Negation(operand):
                return negate(self._work.take(self.of(operand)))
            case Binary():
                return self._binary(node)
            case Array(elements):
                return self._array(elements)
            case Call(function, arguments):
                return self._call(function, arguments)

    def _binary(self, node: Binary) -> Value:
        # A loop: long sums are deep on the left.
        chain: list[Binary] = []
        left: Node = node
        while isinstance(left, Binary):
            chain.append(left)
            left = left.left
        value = self.of(left)
        for operation in reversed(chain):
            right = self.of(operation.right)
            value = combine(operation.operator, self._work.take(value), self._work.take(right))
        return value

    def _array(self, elements: Sequence[Node]) -> list[TimeSeries]:
        array: list[TimeSeries] = []
        for element in elements:
            value = self.of(element)
            if isinstance(value, str):
                raise ExpressionError("an array has time series, and no text")
            if isinstance(value, list):
                self._work.spend(len(value))
                array += value
            elif isinstance(value, float):
                grid = self._scope.grid(self._query.period)
                self._work.spend(len(grid))
                array.append(TimeSeries("", dict.fromkeys(grid, value), self._query.period))
            else:
                array.append(value)
        return array

    def _call(self, name: str, arguments: Sequence[Node]) -> Value:
        if name in NOT_BUILT:
            raise ExpressionError(f"{name} is not supported by Sagehen")
        if name not in FUNCTIONS:
            raise ExpressionError(
                f"{name[:64]} is not supported; the functions are {', '.join(sorted(FUNCTIONS))}"
            )
        least, most, function = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            raise ExpressionError(
                f"{name} takes {expected} argument{'s' * (most > 1)}, not {len(arguments)}"
            )
        result = function(
            self._scope, [self._work.take(self.of(argument)) for argument in arguments]
        )
        if isinstance(result, list):
            self._work.spend(len(result))
        return result


def check_expressions(queries: Sequence[Query]) -> None:
    """Checks an alarm's queries without data; raises AwsError unless the one that is returned is
    a single time series."""

    def grid(period: int) -> Sequence[int]:
        return range(0, 2 * period, period)

    # One point each: functions need some.
    evaluator = Evaluator(queries, lambda _: {0: 1.0}, grid)
    for query in queries:
        value = evaluator.value(query)
        if query.is_returned and isinstance(value, list):
            raise refused(
                f"The expression '{query.id}' has several time series; an alarm watches one."
            )
        if query.is_returned and isinstance(value, float):
            raise refused(
                f"The expression '{query.id}' is a number and no time series; TIME_SERIES() makes "
                "one of it."
            )
