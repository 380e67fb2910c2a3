"""Queries of GetMetricData, and two metrics to query."""

from datetime import UTC, datetime, timedelta

import pytest

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


MINUTE = timedelta(minutes=1)


def query(query_id="m1", name="m", **changes):
    stat = {"Metric": {"Namespace": "Mine", "MetricName": name}, "Period": 60, "Stat": "Sum"}
    outer = {one: changes.pop(one) for one in ("ReturnData", "Label") if one in changes}
    return {"Id": query_id, "MetricStat": {**stat, **changes}, **outer}


def expression(query_id, text, **more):
    return {"Id": query_id, "Expression": text, **more}


def ask(*queries, **changes):
    asked = {"StartTime": NOON, "EndTime": NOON + 10 * MINUTE, "ScanBy": "TimestampAscending"}
    return {"MetricDataQueries": list(queries), **asked, **changes}


def values(answer):
    return {one["Id"]: one["Values"] for one in answer["MetricDataResults"]}


@pytest.fixture
def filled(cloudwatch):
    """Five minutes of `m`: 0, 1, 2, 3, 4; and of `n` 10 in the first and the third."""
    for minute in range(5):
        cloudwatch.put("m", minute, at=NOON + minute * MINUTE)
    for minute in (0, 2):
        cloudwatch.put("n", 10, at=NOON + minute * MINUTE)
    return cloudwatch
