"""The queries of GetMetricData, read and checked."""

import re
from dataclasses import dataclass
from typing import Any

from sagehen.api.cloudwatch.metrics import (
    STATISTICS,
    Statistic,
    is_percentile,
    period_minutes,
    read_dimensions,
)
from sagehen.api.cloudwatch.refusals import refused
from sagehen.domain.series import Series

__all__ = ["Query", "read_queries"]

MOST_QUERIES = 500
_ID = re.compile(r"[a-z][a-zA-Z0-9_]{0,254}")
_NOWHERE = Series("", "", ())


@dataclass(frozen=True, kw_only=True)
class Query:
    """For a metric, or, where there is an expression, for what comes of others."""

    id: str
    label: str
    is_returned: bool
    period: int
    """In minutes."""
    metric: Series = _NOWHERE
    """Its unit does not matter."""
    unit: str | None = None
    """Only values of this one; None for those of any."""
    statistic: Statistic = "Average"
    expression: str | None = None

    @property
    def is_percentile(self) -> bool:
        return self.statistic not in STATISTICS


def read_queries(params: dict[str, Any]) -> list[Query]:
    """Raises AwsError: one of them is not what it must be, or there are too many."""
    given = params["MetricDataQueries"]
    if len(given) > MOST_QUERIES:
        raise refused(
            f"The collection MetricDataQueries must not have a size greater than {MOST_QUERIES}."
        )
    shortest = min(
        (one["MetricStat"]["Period"] // 60 for one in given if "MetricStat" in one), default=1
    )
    for place, one in enumerate(given, 1):
        if "MetricStat" not in one and "Expression" not in one:
            # CloudWatch's own message ends so, too.
            raise refused(
                f"The parameter MetricDataQueries.member.{place}.MetricStat is required.\n"
            )
    queries = [_query(one, max(shortest, 1)) for one in given]
    if len({query.id for query in queries}) < len(queries):
        raise refused("The values for parameter id in MetricDataQueries are not unique.")
    if not any(query.is_returned for query in queries):
        raise refused("At least one query in MetricDataQueries must have ReturnData set to true.")
    return queries


def _query(given: dict[str, Any], shortest: int) -> Query:
    query_id = given["Id"]
    if not _ID.fullmatch(query_id):
        raise refused(
            f"The value {query_id[:64]} for parameter MetricDataQueries.Id is invalid: it begins "
            "with a lowercase letter, and has letters, digits and underscores."
        )
    if "MetricStat" in given and "Expression" in given:
        raise refused(
            f"The query '{query_id}' must have either MetricStat or Expression, and not both."
        )
    if "Expression" in given:
        return Query(
            id=query_id,
            label=given.get("Label", query_id),
            is_returned=given.get("ReturnData", True),
            period=period_minutes(given["Period"]) if "Period" in given else shortest,
            expression=given["Expression"],
        )
    return _of_metric(query_id, given)


def _of_metric(query_id: str, given: dict[str, Any]) -> Query:
    asked = given["MetricStat"]
    metric = asked["Metric"]
    for name in ("Namespace", "MetricName"):
        if name not in metric:
            raise refused(f"The query '{query_id}' must have MetricStat.Metric.{name}.")
    if asked["Stat"] not in STATISTICS and not is_percentile(asked["Stat"]):
        raise refused(
            f"The value {asked['Stat'][:64]} for parameter MetricDataQueries.MetricStat.Stat is "
            f"invalid: {', '.join(STATISTICS)} and percentiles from p0 to p100 are what Sagehen "
            "has."
        )
    path = f"MetricDataQueries.{query_id}.MetricStat.Metric.Dimensions"
    return Query(
        id=query_id,
        label=given.get("Label", metric["MetricName"]),
        is_returned=given.get("ReturnData", True),
        period=period_minutes(asked["Period"]),
        metric=Series(
            metric["Namespace"],
            metric["MetricName"],
            read_dimensions(metric.get("Dimensions", ()), path),
        ),
        unit=asked.get("Unit"),
        statistic=asked["Stat"],
    )
