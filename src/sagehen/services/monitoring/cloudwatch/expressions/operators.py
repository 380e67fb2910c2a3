"""Arithmetic, comparisons and logic of expressions.

A hole in one of two time series counts as 0; a point whose result is no number is left out.
"""

import math
import operator
from collections.abc import Callable, Mapping

from sagehen.services.monitoring.cloudwatch.expressions.values import (
    ExpressionError,
    Points,
    TimeSeries,
    Value,
    finite,
    number_of,
)

__all__ = ["OPERATORS", "combine", "if_", "negate"]

_Act = Callable[[float, float], float]

OPERATORS: Mapping[str, _Act] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": math.pow,
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
    "<": lambda left, right: float(left < right),
    "<=": lambda left, right: float(left <= right),
    ">": lambda left, right: float(left > right),
    ">=": lambda left, right: float(left >= right),
    "AND": lambda left, right: float(left != 0 and right != 0),
    "OR": lambda left, right: float(left != 0 or right != 0),
}


def negate(value: Value) -> Value:
    return combine("*", -1.0, value)


def combine(symbol: str, left: Value, right: Value) -> Value:
    """Raises ExpressionError."""
    if isinstance(left, str) or isinstance(right, str):
        raise ExpressionError(f"the operator {symbol} takes no text")
    act = OPERATORS[symbol]
    if isinstance(left, list) and isinstance(right, list):
        raise ExpressionError(f"the operator {symbol} takes no two arrays of time series")
    if isinstance(left, list):
        return [_combined(act, series, right) for series in left]  # type: ignore[arg-type]
    if isinstance(right, list):
        return [_combined(act, left, series) for series in right]
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.nan
        return number_of(finite(act, left, right))
    return _combined(act, left, right)


def _combined(act: _Act, left: float | TimeSeries, right: float | TimeSeries) -> TimeSeries:
    """At least one is a time series."""
    points: Points = {}
    for second in _seconds(left, right):
        values = (_at(left, second), _at(right, second))
        if any(map(math.isnan, values)):
            continue
        result = finite(act, *values)
        if result is not None:
            points[second] = result
    model = left if isinstance(left, TimeSeries) else right
    assert isinstance(model, TimeSeries)
    return model._replace(points=points)


def _seconds(left: float | TimeSeries, right: float | TimeSeries) -> list[int]:
    seconds: set[int] = set()
    for operand in (left, right):
        if isinstance(operand, TimeSeries):
            seconds |= operand.points.keys()
    return sorted(seconds)


def _at(operand: float | TimeSeries, second: int) -> float:
    return operand.points.get(second, 0.0) if isinstance(operand, TimeSeries) else operand


def if_(condition: Value, yes: Value, no: Value | None) -> Value:
    """IF(condition, yes[, no]); where the condition has a hole, so has the result."""
    for value in (condition, yes, no):
        if isinstance(value, (str, list)):
            raise ExpressionError("IF takes numbers and single time series")
    if isinstance(condition, float):
        if math.isnan(condition) or (condition == 0 and no is None):
            empty = next((v for v in (yes, no) if isinstance(v, TimeSeries)), None)
            return math.nan if empty is None else empty._replace(points={})
        return yes if condition != 0 else no  # type: ignore[return-value]
    assert isinstance(condition, TimeSeries)
    points: Points = {}
    for second, value in condition.points.items():
        picked = _picked(second, yes if value != 0 else no, value == 0, isinstance(yes, TimeSeries))
        if picked is not None and not math.isnan(picked):
            points[second] = picked
    return condition._replace(points=points)


def _picked(second: int, branch: Value | None, is_no: bool, yes_is_series: bool) -> float | None:
    if branch is None or isinstance(branch, float):
        return branch
    assert isinstance(branch, TimeSeries)
    # CloudWatch's documented tables differ: IF(m1, 5, m3) drops holes of m3, IF(m1, m2, m3) does
    # not.
    default = None if is_no and not yes_is_series else 0.0
    return branch.points.get(second, default)
