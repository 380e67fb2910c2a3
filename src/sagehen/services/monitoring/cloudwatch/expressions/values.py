"""The values of expressions: numbers, time series and arrays of time series; and their errors."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.wire.errors import AwsError

__all__ = [
    "ExpressionError",
    "Points",
    "TimeSeries",
    "Value",
    "expression_error",
    "finite",
    "known",
    "map_points",
    "number_of",
]

Points = dict[int, float]
"""values by second since the epoch; a missing second is a hole"""


class TimeSeries(NamedTuple):
    label: str
    points: Points
    period: int
    """seconds"""


Value = float | TimeSeries | list[TimeSeries] | str
"""a scalar that is unknown is NaN; a text is an argument of a function"""


class ExpressionError(Exception):
    """Why an expression has no value; `expression_error` says of which."""


def expression_error(query_id: str, reason: object) -> AwsError:
    return refused(f"Error in expression '{query_id}': {reason}.")


def finite(act: Callable[..., float], *arguments: Any) -> float | None:
    """Returns None where the result is no number, as of x / 0."""
    try:
        result = act(*arguments)
    except (ArithmeticError, ValueError):
        return None
    # A negative number's power may be complex.
    return result if isinstance(result, (int, float)) and math.isfinite(result) else None


def number_of(result: float | None) -> float:
    return math.nan if result is None else result


def map_points(series: TimeSeries, act: Callable[[float], float]) -> TimeSeries:
    """Leaves out results that are no numbers."""
    results = {second: finite(act, value) for second, value in series.points.items()}
    return series._replace(points=known(results))


def known(results: Mapping[int, float | None]) -> Points:
    """Leaves out results that are no numbers."""
    return {second: result for second, result in results.items() if result is not None}
