"""GetMetricData: queries, pages and expressions."""

from datetime import UTC, datetime, timedelta

import pytest

from sagehen.services.monitoring.cloudwatch import data

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


def test_several_metrics_at_once(filled):
    answer = filled.GetMetricData(
        **ask(query(), query("m2", "n", Stat="Average", Label="Tens"), query("m3", "none"))
    )
    first, second, third = answer["MetricDataResults"]
    assert first == {
        "Id": "m1",
        "Label": "m",
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m1", [0, 1, 2, 3, 4]),
        ("m1 + 1", [1, 2, 3, 4, 5]),
        ("10 - m1", [10, 9, 8, 7, 6]),
        ("-m1", [0, -1, -2, -3, -4]),
        ("m1 * 2 + m1 ^ 2", [0, 3, 8, 15, 24]),
        ("2 * 3 ^ 2", [18] * 10),
        ("(m1 + 1) * 2", [2, 4, 6, 8, 10]),
        ("m1 + m2", [10, 12]),
        ("m2 / m1", [5]),
        ("FILL(m2, 0)", [10, 0, 10, 0, 0, 0, 0, 0, 0, 0]),
        ("FILL(m2, 0) + m1", [10, 1, 12, 3, 4]),
        ("SUM(METRICS())", [10, 1, 12, 3, 4]),
        ("AVG([m1, m2])", [5, 1, 6, 3, 4]),
        ("MAX([m1, 2])", [2, 2, 2, 3, 4, 2, 2, 2, 2, 2]),
        ("m1 / SUM(m1)", [0, 0.1, 0.2, 0.3, 0.4]),
        ("MIN(m2)", [10] * 10),
        ("(0 - 1) ^ 0.5 + m1", []),
        ("10 ^ 400 + m1", []),
        ("SUM(none)", []),
    ],
)
def test_arithmetic(filled, text, expected):
    queries = [
        expression("e1", text),
        query("m1", ReturnData=False),
        query("m2", "n", ReturnData=False),
    ]
    if "none" in text:
        queries[1:] = [query("none", "none", ReturnData=False)]
    answer = filled.GetMetricData(**ask(*queries))
    (result,) = answer["MetricDataResults"]
    assert (result["Id"], result["Label"], result["Values"]) == ("e1", "e1", expected)


def test_expressions_of_expressions(filled):
    queries = [expression("e2", "e1 * 2", Label="Twice"), expression("e1", "m1 + 1"), query()]
    answer = filled.GetMetricData(**ask(*queries))
    assert values(answer)["e2"] == [2, 4, 6, 8, 10]
    assert answer["MetricDataResults"][0]["Label"] == "Twice"


@pytest.mark.parametrize(
    "text",
    [
        "m1 +",
        "m1.real",
        "m1[0]",
        "__import__('os')",
        "(lambda: 1)()",
        "m1 if 1 else 2",
        "SEARCH('{a}', 'Sum', 60)",
        "SELECT AVG(x) FROM y",
        "ANOMALY_DETECTION_BAND(m1, 2)",
        "FILL(m1, REPEAT)",
        "SUM(m1, m1)",
        "METRICS('m')",
        "[m1, m1]",
        "METRICS() + 1",
        "'text'",
        "True + m1",
        "1j + m1",
        "nothing + 1",
        "e1 + 1",
        "m1 // 2",
        "-" * 2000 + "1",
        "(" * 1000 + "1" + ")" * 1000,
        "1" + "0" * 400,
        "f(x=1)",
        "m1; m1",
    ],
)
def test_what_is_no_arithmetic(filled, text):
    told = filled.refuses("GetMetricData", **ask(query(), expression("e1", text)))
    assert told[0] == "ValidationError"
    assert "Error in expression" in told[1]


def test_an_expression_has_one_page(filled, monkeypatch):
    queries = [query(), expression("e1", "m1")]
    assert filled.GetMetricData(**ask(*queries, MaxDatapoints=10))
    assert "MaxDatapoints" in filled.refuses("GetMetricData", **ask(*queries, MaxDatapoints=9))[1]
    monkeypatch.setattr(data, "MOST_POINTS_OF_EXPRESSIONS", 19)
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
        (ask(query(Stat="tm90")), "Stat"),
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


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('SELECT SUM(m) FROM "A"', "queries of Metrics Insights (SELECT)"),
        ("  select avg(m) from A group by b", "queries of Metrics Insights (SELECT)"),
        ("SEARCH('{A} m', 'Sum', 60)", "SEARCH is not supported"),
    ],
)
def test_expressions_that_are_queries_are_refused_by_name(filled, text, what):
    code, message = filled.refuses("GetMetricData", **ask(query(), expression("q", text)))
    assert code == "ValidationError"
    assert message.startswith("Error in expression 'q': ")
    assert what in message


def test_a_period_that_is_none(cloudwatch):
    assert (
        cloudwatch.refuses("GetMetricData", **ask(query(Period=61)))[0] == "InvalidParameterValue"
    )


@pytest.mark.parametrize("token", ["", "?", "bm8=", "WzEwXQ==", "Wy0xXQ==", "WzAsMSwyXQ=="])
def test_tokens_that_are_none_of_ours(cloudwatch, token):
    told = cloudwatch.refuses("GetMetricData", **ask(query(), NextToken=token))
    assert told[0] == "InvalidNextToken"
