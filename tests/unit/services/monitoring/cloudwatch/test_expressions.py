"""Arithmetic over metrics."""

import pytest

from support.metric_queries import ask, expression, query, values


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
        ("m1 + m2", [10, 1, 12, 3, 4]),
        ("m2 / m1", [0, 5, 0, 0]),
        ("FILL(m2, 0)", [10, 0, 10, 0, 0, 0, 0, 0, 0, 0]),
        ("FILL(m2, 0) + m1", [10, 1, 12, 3, 4, 0, 0, 0, 0, 0]),
        ("SUM(METRICS())", [10, 1, 12, 3, 4]),
        ("AVG([m1, m2])", [5, 0.5, 6, 1.5, 2]),
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
        "SELECT AVG(x) FROM y",
        "ANOMALY_DETECTION_BAND(m1, 2)",
        "FILL(m1, TWICE)",
        "FILL(m1)",
        "SUM(m1, m1)",
        "SUM('m')",
        "'text'",
        "REPEAT",
        "'a' + m1",
        "[m1] + [m1]",
        "['a']",
        "METRICS(m1)",
        "SORT(m1, AVG, ASC)",
        "SORT(METRICS(), MEDIAN, ASC)",
        "SLICE(METRICS(), -1)",
        "FIRST(REMOVE_EMPTY([FILL(m1 * 0 / 0, LINEAR)]))",
        "TIME_SERIES(m1)",
        "PERIOD(1)",
        "IF(METRICS(), 1)",
        "True + m1",
        "1j + m1",
        "m1 ! m1",
        "nothing + 1",
        "e1 + 1",
        "m1 // 2",
        "(" * 2000 + "1",
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


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('SELECT SUM(m) FROM "A"', "queries of Metrics Insights (SELECT)"),
        ("  select avg(m) from A group by b", "queries of Metrics Insights (SELECT)"),
        ("INSIGHT_RULE_METRIC('r', 'm')", "INSIGHT_RULE_METRIC is not supported"),
    ],
)
def test_expressions_that_are_queries_are_refused_by_name(filled, text, what):
    code, message = filled.refuses("GetMetricData", **ask(query(), expression("q", text)))
    assert code == "ValidationError"
    assert message.startswith("Error in expression 'q': ")
    assert what in message
