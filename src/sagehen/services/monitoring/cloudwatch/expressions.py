"""Metric math: arithmetic, SUM, AVG, MIN, MAX, FILL and METRICS.

Expressions are parsed by Python's parser; only these forms are accepted, and nothing is executed.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.wire.errors import AwsError

__all__ = ["Points", "evaluate"]

Points = dict[int, float]
"""values by minute"""
Operand = Points | float
Value = Operand | list[Points]

_QUERY = re.compile(r"\s*select\s+\w+\s*\(", re.IGNORECASE)
"""start of a Metrics Insights query; a query's own Id may be `select`"""
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_OVER: Mapping[str, Callable[[Sequence[float]], float]] = {
    "SUM": math.fsum,
    "AVG": lambda values: math.fsum(values) / len(values),
    "MIN": min,
    "MAX": max,
}


def evaluate(
    query_id: str,
    expression: str,
    named: Callable[[str], Points],
    metrics: Callable[[], list[Points]],
    grid: Sequence[int],
) -> Points:
    """Returns the points of an expression; raises AwsError.

    Args:
        named: returns another query's points, or raises AwsError.
        metrics: returns the points of all metric queries.
        grid: the minutes that FILL fills.
    """
    if _QUERY.match(expression):
        raise _wrong(
            query_id,
            "queries of Metrics Insights (SELECT) are not implemented by Sagehen; ask for each "
            "metric by MetricStat, and add them up by an expression such as SUM(METRICS())",
        )
    try:
        # CloudWatch writes powers with `^` and has no `**`.
        tree = ast.parse(expression.replace("^", "**").strip(), mode="eval")
        result = _Evaluation(query_id, named, metrics, grid).of(tree.body)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        raise _wrong(query_id, "it cannot be read") from None
    if isinstance(result, list):
        raise _wrong(query_id, "its result is several time series; one is supported")
    return dict.fromkeys(grid, result) if isinstance(result, float) else result


class _Evaluation:
    def __init__(
        self,
        query_id: str,
        named: Callable[[str], Points],
        metrics: Callable[[], list[Points]],
        grid: Sequence[int],
    ) -> None:
        self._query_id = query_id
        self._named = named
        self._metrics = metrics
        self._grid = grid

    def of(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.List):
            return [self._points(element) for element in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return _combine(operator.mul, sign, self._operand(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            act = _ARITHMETIC[type(node.op)]
            return _combine(act, self._operand(node.left), self._operand(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args)
        raise self._unsupported(ast.unparse(node))

    def _call(self, name: str, arguments: list[ast.expr]) -> Value:
        if name == "METRICS" and not arguments:
            return self._metrics()
        if name == "FILL" and len(arguments) == 2:
            points, filling = self._points(arguments[0]), self._operand(arguments[1])
            if isinstance(filling, float):
                return {minute: points.get(minute, filling) for minute in self._grid}
        if name in _OVER and len(arguments) == 1:
            return _over(_OVER[name], self.of(arguments[0]))
        raise self._unsupported(name)

    def _operand(self, node: ast.expr) -> Operand:
        result = self.of(node)
        if isinstance(result, list):
            raise self._unsupported("arithmetic over several time series at once")
        return result

    def _points(self, node: ast.expr) -> Points:
        result = self._operand(node)
        return dict.fromkeys(self._grid, result) if isinstance(result, float) else result

    def _unsupported(self, form: str) -> AwsError:
        return _wrong(
            self._query_id,
            f"{form[:64]} is not supported; + - * / ^, SUM, AVG, MIN, MAX, METRICS() and FILL with "
            "a number are",
        )


def _combine(act: Callable[[float, float], float], left: Operand, right: Operand) -> Operand:
    """Combines minutes that both have; results that are not numbers, as of x / 0, are left out."""
    if isinstance(left, float) and isinstance(right, float):
        result = _number(act, left, right)
        return {} if result is None else result
    minutes = left.keys() if isinstance(left, dict) else right.keys()  # type: ignore[union-attr]
    if isinstance(left, dict) and isinstance(right, dict):
        minutes = left.keys() & right.keys()
    combined = {
        minute: _number(
            act,
            left[minute] if isinstance(left, dict) else left,
            right[minute] if isinstance(right, dict) else right,
        )
        for minute in minutes
    }
    return {minute: number for minute, number in combined.items() if number is not None}


def _number(act: Callable[[float, float], float], left: float, right: float) -> float | None:
    try:
        result = act(left, right)
    except (ArithmeticError, ValueError):
        return None
    return result if math.isfinite(result) else None


def _over(act: Callable[[Sequence[float]], float], value: Value) -> Value:
    """Aggregates a list minute by minute, and one series to a number."""
    if isinstance(value, float):
        return value
    if isinstance(value, dict):
        return act(list(value.values())) if value else {}
    by_minute: dict[int, list[float]] = {}
    for points in value:
        for minute, number in points.items():
            by_minute.setdefault(minute, []).append(number)
    return {minute: act(numbers) for minute, numbers in by_minute.items()}


def _wrong(query_id: str, reason: str) -> AwsError:
    return refused(f"Error in expression '{query_id}': {reason}.")
