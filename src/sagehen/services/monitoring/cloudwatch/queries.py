"""The queries of GetMetricData and of alarms: for a metric, or an expression over other queries."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sagehen.frame.statistics import Series
from sagehen.services.monitoring.cloudwatch.errors import refused
from sagehen.services.monitoring.cloudwatch.metrics import (
    STATISTICS,
    Statistic,
    check_period,
    is_statistic,
    read_dimensions,
)

__all__ = ["MAX_QUERIES", "Query", "metric_query", "read_queries"]

MAX_QUERIES = 500
_ID = re.compile(r"[a-z][a-zA-Z0-9_]{0,254}")
_NOWHERE = Series("", "", ())


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query for a metric or an expression over other queries."""

    id: str
    label: str
    default_label: str
    """of a query without a Label"""
    is_returned: bool
    period: int
    """seconds"""
    metric: Series = _NOWHERE
    """its unit is ignored"""
    unit: str | None = None
    """None for values of any unit"""
    statistic: Statistic = "Average"
    expression: str | None = None

    @property
    def needs_distribution(self) -> bool:
        return self.statistic not in STATISTICS


def read_queries(
    entries: Sequence[Mapping[str, Any]], member: str = "MetricDataQueries"
) -> list[Query]:
    """Raises AwsError for invalid or too many queries.

    Args:
        member: of the request, for messages.
    """
    if len(entries) > MAX_QUERIES:
        raise refused(f"The collection {member} must not have a size greater than {MAX_QUERIES}.")
    shortest = min(
        (entry["MetricStat"]["Period"] for entry in entries if "MetricStat" in entry), default=60
    )
    for number, entry in enumerate(entries, 1):
        if "MetricStat" not in entry and "Expression" not in entry:
            # CloudWatch's own message ends with a newline, too.
            raise refused(f"The parameter {member}.member.{number}.MetricStat is required.\n")
    stats = [entry["MetricStat"] for entry in entries if "MetricStat" in entry]
    differing = [name for name in ("Stat", "Period") if len({stat[name] for stat in stats}) > 1]
    queries = [_query(entry, shortest, member, differing) for entry in entries]
    if len({query.id for query in queries}) < len(queries):
        raise refused(f"The values for parameter id in {member} are not unique.")
    if not any(query.is_returned for query in queries):
        raise refused(f"At least one query in {member} must have ReturnData set to true.")
    return queries


def _query(entry: Mapping[str, Any], shortest: int, member: str, differing: Sequence[str]) -> Query:
    """`differing` are the members of MetricStat that label a metric besides its name."""
    query_id = entry["Id"]
    if not _ID.fullmatch(query_id):
        raise refused(
            f"The value {query_id[:64]} for parameter {member}.Id is invalid: it begins "
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
            default_label=query_id,
            is_returned=entry.get("ReturnData", True),
            period=check_period(entry["Period"]) if "Period" in entry else shortest,
            expression=entry["Expression"],
        )
    return _of_metric(query_id, entry, member, differing)


def _of_metric(
    query_id: str, entry: Mapping[str, Any], member: str, differing: Sequence[str]
) -> Query:
    metric_stat = entry["MetricStat"]
    metric = metric_stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if name not in metric:
            raise refused(f"The query '{query_id}' must have MetricStat.Metric.{name}.")
    if not is_statistic(metric_stat["Stat"]):
        raise refused(
            f"The value {metric_stat['Stat'][:64]} for parameter {member}.MetricStat.Stat is not "
            "supported."
        )
    path = f"{member}.{query_id}.MetricStat.Metric.Dimensions"
    default_label = " ".join(
        [metric["MetricName"], *(f"{metric_stat[name]}" for name in differing)]
    )
    return Query(
        id=query_id,
        label=entry.get("Label", default_label),
        default_label=default_label,
        is_returned=entry.get("ReturnData", True),
        period=check_period(metric_stat["Period"]),
        metric=Series(
            metric["Namespace"],
            metric["MetricName"],
            read_dimensions(metric.get("Dimensions", ()), path),
        ),
        unit=metric_stat.get("Unit"),
        statistic=metric_stat["Stat"],
    )


def metric_query(definition: Mapping[str, Any]) -> Query:
    """Returns the query of an alarm's own metric."""
    dimensions = read_dimensions(definition.get("Dimensions", ()), "Dimensions")
    return Query(
        id="metric",
        label=definition["MetricName"],
        default_label=definition["MetricName"],
        is_returned=True,
        period=definition["Period"],
        metric=Series(definition["Namespace"], definition["MetricName"], dimensions),
        unit=definition.get("Unit"),
        statistic=definition.get("Statistic") or definition["ExtendedStatistic"],
    )
