"""GetMetricData: queries, pages and expressions."""

from datetime import timedelta

import pytest

from sagehen.services.monitoring.cloudwatch import data
from support.metric_queries import MINUTE, NOON, ask, expression, query, values


def test_several_metrics_at_once(filled):
    answer = filled.GetMetricData(
        **ask(query(), query("m2", "n", Stat="Average", Label="Tens"), query("m3", "none"))
    )
    first, second, third = answer["MetricDataResults"]
    assert first == {
        "Id": "m1",
        "Label": "m Sum",
        "Timestamps": [NOON + minute * MINUTE for minute in range(5)],
        "Values": [0, 1, 2, 3, 4],
        "StatusCode": "Complete",
    }
    assert (second["Label"], second["Values"]) == ("Tens", [10, 10])
    assert (third["Values"], third["StatusCode"]) == ([], "Complete")
    assert "NextToken" not in answer


def test_the_newest_come_first_unless_asked_otherwise(filled):
    asked = ask(query())
    del asked["ScanBy"]
    answer = filled.GetMetricData(**asked)
    assert values(answer) == {"m1": [4, 3, 2, 1, 0]}
    assert answer["MetricDataResults"][0]["Timestamps"][0] == NOON + 4 * MINUTE


def test_periods_and_percentiles(filled):
    assert values(filled.GetMetricData(**ask(query(Period=180)))) == {"m1": [3, 7]}
    assert values(filled.GetMetricData(**ask(query(Stat="p100", Period=180)))) == {"m1": [2, 4]}


def test_shortest_periods_in_expressions(cloudwatch):
    fine = [{"MetricName": "m", "Value": 20.0, "Timestamp": NOON, "StorageResolution": 1}]
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=fine)
    rates = [expression("e1", "m1 / PERIOD(m1)"), expression("e2", "FILL(m1, 0)")]
    asked = ask(query(Period=1), *rates, EndTime=NOON + MINUTE)
    assert values(cloudwatch.GetMetricData(**asked)) == {
        "m1": [20],
        "e1": [2],
        "e2": [20, 0, 0, 0, 0, 0],
    }


def test_units(cloudwatch):
    cloudwatch.put("m", 1, unit="Seconds")
    cloudwatch.put("m", 5, unit="Count")
    assert values(cloudwatch.GetMetricData(**ask(query()))) == {"m1": [6]}
    assert values(cloudwatch.GetMetricData(**ask(query(Unit="Count")))) == {"m1": [5]}


@pytest.mark.parametrize("scan", ["TimestampAscending", "TimestampDescending"])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 8])
def test_pages_have_every_point_once(filled, scan, most):
    queries = [query(), query("m2", "none"), query("m3", "n"), query("m4", ReturnData=False)]
    found = {"m1": [], "m2": [], "m3": []}
    token, pages = {}, 0
    while True:
        page = filled.GetMetricData(**ask(*queries, ScanBy=scan, MaxDatapoints=most, **token))
        pages += 1
        assert sum(len(one["Values"]) for one in page["MetricDataResults"]) <= most
        for one in page["MetricDataResults"]:
            found[one["Id"]] += one["Values"]
            whole = one["StatusCode"] == "Complete"
            assert whole or "NextToken" in page
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    order = slice(None, None, 1 if scan == "TimestampAscending" else -1)
    assert found == {"m1": [0, 1, 2, 3, 4][order], "m2": [], "m3": [10, 10]}
    assert pages <= -(-7 // most) + 1


def test_an_expression_has_one_page(filled, monkeypatch):
    queries = [query(), expression("e1", "m1")]
    assert filled.GetMetricData(**ask(*queries, MaxDatapoints=10))
    assert "MaxDatapoints" in filled.refuses("GetMetricData", **ask(*queries, MaxDatapoints=9))[1]
    monkeypatch.setattr(data, "MAX_POINTS_OF_EXPRESSIONS", 19)
    assert "20 datapoints" in filled.refuses("GetMetricData", **ask(*queries))[1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (ask(query(), EndTime=NOON), "must not equal"),
        (ask(query(), EndTime=NOON + timedelta(microseconds=999_999)), "must not equal"),
        (
            ask(query(), EndTime=NOON - MINUTE),
            "The parameter EndTime must be greater than StartTime.",
        ),
        (ask(query(), query()), "not unique"),
        (ask(query("M1")), "lowercase"),
        (ask(query("m-1")), "lowercase"),
        (ask(query(ReturnData=False)), "ReturnData"),
        (ask(), "ReturnData"),
        (
            ask(query(), {"Id": "m2"}),
            "The parameter MetricDataQueries.member.2.MetricStat is required.\n",
        ),
        (ask({**query(), "Expression": "1"}), "either MetricStat or Expression"),
        (ask(query(Stat="tm900")), "Stat"),
        (ask(query(Metric={"Namespace": "n"})), "MetricName"),
        (ask(query(), MaxDatapoints=0), "MaxDatapoints"),
        (ask(query(), MaxDatapoints=100_801), "MaxDatapoints"),
        (ask(*[query(f"m{number}") for number in range(501)]), "size greater than 500"),
    ],
)
def test_what_is_refused(cloudwatch, asked, words):
    told = cloudwatch.refuses("GetMetricData", **asked)
    assert told[0] == "ValidationError"
    assert words in told[1]


def test_a_period_that_is_none(cloudwatch):
    assert (
        cloudwatch.refuses("GetMetricData", **ask(query(Period=61)))[0] == "InvalidParameterValue"
    )


@pytest.mark.parametrize("token", ["", "?", "bm8=", "WzEwXQ==", "Wy0xXQ==", "WzAsMSwyXQ=="])
def test_tokens_that_are_none_of_ours(cloudwatch, token):
    told = cloudwatch.refuses("GetMetricData", **ask(query(), NextToken=token))
    assert told[0] == "InvalidNextToken"
