"""Labels of GetMetricData, and the dynamic values in them: `${MAX}`, `${PROP('Stat')}`.

Source: CloudWatch's user guide (graph-dynamic-labels). It does not say how times look, so those
values are refused by name. Numbers are written in full.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.services.monitoring.cloudwatch.expressions.values import Points
from sagehen.services.monitoring.cloudwatch.queries import Query

__all__ = ["check_labels", "label_of"]

_DYNAMIC = re.compile(r"\$\{([^{}]*)\}")
_PROPERTY = re.compile(r"PROP\('([^']*)'\)")
_TIME_ZONE = re.compile(r"[+-]\d{4}")
_DIMENSION = "Dim."

_OF_VALUES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AVG": lambda values: math.fsum(values) / len(values),
    "FIRST": lambda values: values[0],
    "FIRST_LAST_RANGE": lambda values: values[-1] - values[0],
    "LAST": lambda values: values[-1],
    "MAX": max,
    "MIN": min,
    "MIN_MAX_RANGE": lambda values: max(values) - min(values),
    "SUM": math.fsum,
}
_PROPERTIES: Mapping[str, Callable[[Query, ArnMaker], object]] = {
    "AccountId": lambda _, arns: arns.account_id,
    "MetricName": lambda query, _: query.metric.name,
    "Namespace": lambda query, _: query.metric.namespace,
    "Period": lambda query, _: query.period,
    "Region": lambda _, arns: arns.region,
    "Stat": lambda query, _: query.statistic,
}


def check_labels(params: Mapping[str, Any]) -> None:
    """Checks a request of GetMetricData; raises AwsError."""
    zone = params.get("LabelOptions", {}).get("Timezone")
    if zone is not None and not _TIME_ZONE.fullmatch(zone):
        raise refused(
            f"The value {zone[:64]} for parameter LabelOptions.Timezone is invalid: it is a sign "
            "and four digits, such as +0130."
        )
    for entry in params["MetricDataQueries"]:
        for name in _DYNAMIC.findall(entry.get("Label", "")):
            _check(name)


def _check(name: str) -> None:
    if "TIME" in name:
        raise refused(f"Not implemented by Sagehen: ${{{name[:64]}}} in a Label.")
    listed = _PROPERTY.fullmatch(name)
    known = listed and (listed[1] in _PROPERTIES or listed[1].startswith(_DIMENSION))
    if not known and name not in {*_OF_VALUES, "DATAPOINT_COUNT", "LABEL"}:
        raise refused(
            f"The value ${{{name[:64]}}} in a Label is not supported; there are "
            f"{', '.join(sorted(_OF_VALUES))}, DATAPOINT_COUNT, LABEL, and PROP('…') of "
            f"{', '.join(_PROPERTIES)} or {_DIMENSION}<name>."
        )


def label_of(label: str, query: Query, points: Points, arns: ArnMaker) -> str:
    """Fills in the dynamic values. Those of no points, those whose computation overflows, and an
    expression's properties are empty.

    Args:
        label: of the time series; an expression may have several.
    """
    values = [number for _, number in sorted(points.items())]

    @functools.cache  # A long label may repeat a name very often.
    def dynamic_value(name: str) -> str:
        if name == "LABEL":
            return query.default_label
        if name == "DATAPOINT_COUNT":
            return str(len(points))
        if name in _OF_VALUES:
            return _text(_OF_VALUES[name], values) if values else ""
        listed = _PROPERTY.fullmatch(name)
        if listed is None:
            return f"${{{name}}}"  # of a metric's name, which no label has to hold
        return _property(listed[1], query, arns) if query.expression is None else ""

    return _DYNAMIC.sub(lambda match: dynamic_value(match[1]), label)


def _property(name: str, query: Query, arns: ArnMaker) -> str:
    if name in _PROPERTIES:
        return str(_PROPERTIES[name](query, arns))
    return dict(query.metric.dimensions).get(name.removeprefix(_DIMENSION), "")


def _text(act: Callable[[Sequence[float]], float], values: Sequence[float]) -> str:
    try:
        number = act(values)
    except OverflowError:
        return ""
    return f"{Decimal(repr(number)):f}".removesuffix(".0") if math.isfinite(number) else ""
