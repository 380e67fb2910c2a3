"""ListMetrics, PutMetricData and the table of CloudWatch operations."""

import base64
import binascii
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sagehen.frame.context import Operation, RequestContext
from sagehen.frame.statistics import Series, Statistics, of_set, of_values
from sagehen.services.monitoring.cloudwatch.data import get_metric_data
from sagehen.services.monitoring.cloudwatch.errors import (
    combination,
    invalid,
    missing,
    not_built,
    over_limit,
)
from sagehen.services.monitoring.cloudwatch.metrics import read_dimensions
from sagehen.services.monitoring.cloudwatch.sample_reads import MetricName, metrics
from sagehen.services.monitoring.cloudwatch.sample_store import (
    FINE_RETENTION_SECONDS,
    MINUTES,
    TENS,
    add,
)
from sagehen.services.monitoring.cloudwatch.statistics import get_metric_statistics
from sagehen.wire.errors import AwsError

__all__ = ["OPERATIONS", "list_metrics", "put_metric_data"]

PAGE = 500
_LISTED_SECONDS = 14 * 86_400
_RECENT_SECONDS = 3 * 3600


def list_metrics(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Lists metrics with values in the last two weeks or, with RecentlyActive, three hours."""
    if params.get("OwningAccount", call.settings.account_id) != call.settings.account_id:
        raise invalid("OwningAccount: there is no other account here.")
    seconds = _RECENT_SECONDS if "RecentlyActive" in params else _LISTED_SECONDS
    since_minute = int((call.clock.now() - seconds) // 60)
    filters = params.get("Dimensions", [])
    with call.database.read() as connection:
        listed = metrics(
            connection,
            _read_token(params.get("NextToken")),
            params.get("Namespace"),
            params.get("MetricName"),
            since_minute,
        )
        page = list(islice((metric for metric in listed if _has(metric, filters)), PAGE + 1))
    answer: dict[str, Any] = {"Metrics": [_summary(metric) for metric in page[:PAGE]]}
    if len(page) > PAGE:
        answer["NextToken"] = _token(page[PAGE - 1].cursor)
    if params.get("IncludeLinkedAccounts"):
        answer["OwningAccounts"] = [call.settings.account_id] * len(page[:PAGE])
    return answer


def _has(metric: MetricName, filters: list[dict[str, str]]) -> bool:
    """Checks that the metric has all requested dimensions; it may have more."""
    dimensions = dict(metric.dimensions)
    return all(
        filter_["Name"] in dimensions
        and filter_.get("Value", dimensions[filter_["Name"]]) == dimensions[filter_["Name"]]
        for filter_ in filters
    )


def _summary(metric: MetricName) -> dict[str, Any]:
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
    }


def _token(cursor: int) -> str:
    return base64.urlsafe_b64encode(str(cursor).encode()).decode()


def _read_token(token: str | None) -> int:
    if token is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode("ascii")
        if not text.isdecimal() or len(text) > 18:
            raise _bad_token()
        return int(text)
    except (binascii.Error, ValueError):
        raise _bad_token() from None


def _bad_token() -> AwsError:
    return invalid("Request parameter NextToken is invalid")


MAX_METRICS = 1000
MAX_VALUES = 150
LARGEST_VALUE = 2.0**360
PAST_SECONDS = 14 * 86_400
FUTURE_SECONDS = 2 * 3600
_RESERVED = ("AWS/", "/aws/")
_JAVAS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""CloudWatch's names of numbers that are not finite"""


def put_metric_data(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Writes all values or none; they are on disk when this returns."""
    namespace = params["Namespace"]
    if namespace.startswith(_RESERVED):
        raise invalid(
            f"The value {namespace[:64]} for parameter Namespace is invalid: names that "
            "begin with AWS/ are kept for services."
        )
    if "EntityMetricData" in params:
        raise not_built("EntityMetricData")
    data = params.get("MetricData", [])
    if not data:
        raise missing("MetricData")
    if len(data) > MAX_METRICS:
        raise invalid(f"The collection MetricData must not have a size greater than {MAX_METRICS}.")
    batch: dict[tuple[Series, int], Statistics] = {}
    fine: dict[tuple[Series, int], Statistics] = {}
    for number, datum in enumerate(data, 1):
        path = f"MetricData.member.{number}"
        series, second = _series(namespace, datum, path), _second(call, datum, path)
        statistics = _statistics(datum, path)
        key = (series, int(second // MINUTES.seconds))
        batch.setdefault(key, Statistics()).merge(statistics)
        is_fine = datum.get("StorageResolution", 60) == 1
        if is_fine and second >= call.clock.now() - FINE_RETENTION_SECONDS:
            key = (series, int(second // TENS.seconds))
            fine.setdefault(key, Statistics()).merge(statistics)
    with call.database.write() as connection:
        most_series = call.settings.max_metric_series
        dropped = add(connection, batch, most_series)
        if dropped or add(connection, fine, most_series, TENS):
            raise over_limit(
                f"There are {call.settings.max_metric_series} series of metrics already, which is "
                "the setting max_metric_series; series that get no values for long enough go."
            )
    return {}


def _series(namespace: str, datum: dict[str, Any], path: str) -> Series:
    name = datum["MetricName"]
    if not name.isascii() or not name.isprintable():
        raise invalid(f"The value {name[:64]} for parameter {path}.MetricName is invalid.")
    if datum.get("StorageResolution", 60) not in (1, 60):
        raise invalid(f"The parameter {path}.StorageResolution must be 1 or 60.")
    dimensions = read_dimensions(datum.get("Dimensions", ()), f"{path}.Dimensions")
    return Series(namespace, name, dimensions, datum.get("Unit", "None"))


def _second(call: RequestContext, datum: dict[str, Any], path: str) -> float:
    """Returns seconds since the epoch."""
    now = call.clock.now()
    timestamp = datum.get("Timestamp")
    if timestamp is None:
        return now
    seconds: float = timestamp.timestamp()
    if not now - PAST_SECONDS <= seconds <= now + FUTURE_SECONDS:
        raise invalid(
            f"The parameter {path}.Timestamp must specify a time no more than two weeks in the "
            "past and no more than two hours in the future."
        )
    return seconds


def _statistics(datum: dict[str, Any], path: str) -> Statistics:
    names = [name for name in ("Value", "StatisticValues", "Values") if name in datum]
    if not names:
        raise missing(f"{path}.Value")
    if len(names) > 1 and names[0] == "Value":
        raise combination(
            f"The parameters {path}.{names[0]} and {path}.{names[1]} are mutually exclusive and "
            "you have specified both."
        )
    if "Counts" in datum and "Values" not in names:
        raise combination(f"The parameter {path}.Counts must come with {path}.Values.")
    if names == ["Value"]:
        return of_values({_number(datum["Value"], f"{path}.Value"): 1})
    # CloudWatch takes a set and values in one datum: both count.
    statistics = _of_lists(datum, path) if "Values" in names else Statistics()
    if "StatisticValues" in names:
        statistics.merge(_of_set(datum["StatisticValues"], f"{path}.StatisticValues"))
    return statistics


def _of_lists(datum: dict[str, Any], path: str) -> Statistics:
    values = datum["Values"]
    counts = datum.get("Counts", [1.0] * len(values))
    if not values:
        raise missing(f"{path}.Values")
    if len(values) > MAX_VALUES:
        raise invalid(
            f"The collection {path}.Values must not have a size greater than {MAX_VALUES}."
        )
    if len(counts) != len(values):
        raise invalid(f"The parameters {path}.Values and {path}.Counts must be of the same size.")
    statistics = Statistics()
    for value, count in _pairs(values, counts, path):
        if count:
            statistics.add(value, count)
    if not statistics.count:
        raise invalid(f"The parameter {path}.Counts must have a count that is not 0.")
    return statistics


def _pairs(values: list[float], counts: list[float], path: str) -> Iterator[tuple[float, float]]:
    for number, (value, count) in enumerate(zip(values, counts, strict=True), 1):
        checked = _number(count, f"{path}.Counts.member.{number}")
        if checked < 0:
            raise invalid(
                f"The value {count} for parameter {path}.Counts.member.{number} is invalid."
            )
        yield _number(value, f"{path}.Values.member.{number}"), checked


def _of_set(members: dict[str, float], path: str) -> Statistics:
    count, total, minimum, maximum = (
        _number(members[name], f"{path}.{name}")
        for name in ("SampleCount", "Sum", "Minimum", "Maximum")
    )
    if count <= 0:
        raise invalid(f"The value {count} for parameter {path}.SampleCount is invalid.")
    if minimum > maximum:
        raise invalid(f"The parameter {path}.Minimum must not be greater than {path}.Maximum.")
    statistics = of_set(count, total, minimum, maximum)
    statistics.sum = total
    return statistics


def _number(value: float, path: str) -> float:
    if not math.isfinite(value) or abs(value) > LARGEST_VALUE:
        raise invalid(f"The value {_JAVAS.get(str(value), value)} for parameter {path} is invalid.")
    return float(value)


OPERATIONS: dict[str, Operation] = {
    "GetMetricData": get_metric_data,
    "GetMetricStatistics": get_metric_statistics,
    "ListMetrics": list_metrics,
    "PutMetricData": put_metric_data,
}
