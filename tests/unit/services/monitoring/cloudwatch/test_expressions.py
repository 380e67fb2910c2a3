"""Arithmetic over metrics."""

import statistics
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from sagehen.services.monitoring.cloudwatch.expressions import evaluator
from sagehen.services.monitoring.cloudwatch.expressions.functions import FUNCTIONS
from sagehen.services.monitoring.cloudwatch.expressions.values import TimeSeries
from support.metric_queries import NOON, ask, expression, query, values

BIG = 2.0**1023 + (2.0**1023 - 2.0**971)
LATER = NOON + timedelta(hours=1)


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
        ("INSIGHT_RULE_METRIC('r', 'm')", "INSIGHT_RULE_METRIC is not supported by Sagehen"),
        ("SEARCH('{A} m', 'Sum', 60)", "SEARCH is not supported by Sagehen"),
    ],
)
def test_expressions_that_are_queries_are_refused_by_name(filled, text, what):
    code, message = filled.refuses("GetMetricData", **ask(query(), expression("q", text)))
    assert code == "ValidationError"
    assert message.startswith("Error in expression 'q': ")
    assert what in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # m1 is 0, 1, 2, 3, 4 and m2 is 10 in the first and the third minute.
        ("m1 > 2", [0, 0, 0, 1, 1]),
        ("m1 >= 2 AND m1 < 4", [0, 0, 1, 1, 0]),
        ("m1 == 0 || m1 == 4", [1, 0, 0, 0, 1]),
        ("m2 != m1", [1, 1, 1, 1, 1]),
        ("-m1 ^ 2", [0, -1, -4, -9, -16]),
        ("2 ^ 3 ^ 2 + 0 * m1", [512] * 5),
        ("2 ^ -1 * m1", [0, 0.5, 1, 1.5, 2]),
        ("--m1", [0, 1, 2, 3, 4]),
        ("1.5e1 + m1 - .5", [14.5, 15.5, 16.5, 17.5, 18.5]),
        ("IF(m1 > 2, m1)", [3, 4]),
        ("IF(m1 > 2, m1, 0 - m1)", [0, -1, -2, 3, 4]),
        ("IF(m1 > 0, m2, 7)", [7, 0, 10, 0, 0]),
        ("IF(m1 > 3, 5, m2)", [10, 10, 5]),
        ("IF(m1 > 3, m1, m2)", [10, 0, 10, 0, 4]),
        ("IF(1, m1, m2)", [0, 1, 2, 3, 4]),
        ("IF(0, m1, m2)", [10, 10]),
        ("IF(0, m1)", []),
        ("IF(SUM(none), m1, m2)", []),
        ("FILL(m2, REPEAT)", [10] * 10),
        ("FILL(m2 * m1 + m2, LINEAR)", [10, 0, 30, 0, 0]),
        ("FILL(IF(m2, m2 + m1), LINEAR)", [10, 11, 12]),
        ("FILL(m2, m1)", [10, 1, 10, 3, 4]),
        ("DIFF(m1 * m1)", [1, 3, 5, 7]),
        ("DIFF(m2)", [0]),
        ("RATE(m1 * 60)", [1, 1, 1, 1]),
        ("DIFF_TIME(m2)", [120]),
        ("RUNNING_SUM(m1)", [0, 1, 3, 6, 10]),
        ("ABS(0 - m1)", [0, 1, 2, 3, 4]),
        ("CEIL(m1 / 3)", [0, 1, 1, 1, 2]),
        ("FLOOR(m1 / 3)", [0, 0, 0, 1, 1]),
        ("LOG10(m1 * 25)", [pytest.approx(value) for value in (1.39794, 1.69897, 1.87506, 2)]),
        ("LOG(m2 / 10)", [0, 0]),
        ("SUM([m1, m2])", [10, 1, 12, 3, 4]),
        ("MIN([m1, m2])", [0, 1, 2, 3, 4]),
        ("STDDEV([m1, m2])", [5, 0, 4, 0, 0]),
        ("m1 - AVG(m1)", [-2, -1, 0, 1, 2]),
        ("m1 / MAX(m1)", [0, 0.25, 0.5, 0.75, 1]),
        ("0 * m1 + STDDEV(m2)", [0] * 5),
        ("0 * m1 + DATAPOINT_COUNT(m2)", [2] * 5),
        ("DATAPOINT_COUNT(METRICS())", [2, 1, 2, 1, 1]),
        ("0 * m1 + METRIC_COUNT(METRICS())", [2] * 5),
        ("SUM(METRICS('1'))", [0, 1, 2, 3, 4]),
        ('SUM([METRICS("2"), METRICS("none")])', [10, 10]),
        ("FIRST(METRICS())", [0, 1, 2, 3, 4]),
        ("LAST(METRICS())", [10, 10]),
        ("FIRST(SORT(METRICS(), MAX, DESC))", [10, 10]),
        ("FIRST(SORT(METRICS(), SUM, ASC, 1))", [0, 1, 2, 3, 4]),
        ("SUM(SLICE(METRICS(), 1))", [10, 10]),
        ("SUM(SLICE(METRICS(), 0, 1))", [0, 1, 2, 3, 4]),
        ("SUM(REMOVE_EMPTY([m2, m1 / 0]))", [10, 10]),
        ("TIME_SERIES(3)", [3] * 10),
        ("m1 * PERIOD(m1)", [0, 60, 120, 180, 240]),
        ("MINUTE(m1)", [0, 1, 2, 3, 4]),
        ("HOUR(m2)", [12, 12]),
        ("DAY(m2)", [7, 7]),
        ("DATE(m2) + 100 * MONTH(m2) + 10000 * YEAR(m2)", [20261101, 20261101]),
        ("EPOCH(m2) - 1793534400", [0, 120]),
        ("SUM(METRICS() * 2 + 1)", [22, 3, 26, 7, 9]),
        ("1 + ABS(-3) + CEIL(0.5) + 0 * m2", [5, 5]),
        ("m1 / (m1 - m1)", []),
    ],
)
def test_functions(filled, text, expected):
    queries = [
        expression("e1", text),
        query("m1", ReturnData=False),
        query("m2", "n", ReturnData=False),
    ]
    if "none" in text and "METRICS" not in text:
        queries.append(query("none", "none", ReturnData=False))
    (result,) = filled.GetMetricData(**ask(*queries))["MetricDataResults"]
    assert result["Values"] == expected


def test_an_array_has_a_result_for_each_of_its_series(filled):
    queries = [expression("e1", "METRICS() * 2", Label="Twice"), query("m1", Label="Ms")]
    queries.append(query("m2", "n", ReturnData=False))
    answer = filled.GetMetricData(**ask(*queries))
    assert [(one["Id"], one["Label"], one["Values"]) for one in answer["MetricDataResults"]] == [
        ("e1", "Twice Ms", [0, 2, 4, 6, 8]),
        ("e1", "Twice n", [20, 20]),
        ("m1", "Ms", [0, 1, 2, 3, 4]),
    ]


def test_a_long_chain_of_expressions(filled):
    chain = [expression(f"e{number}", f"e{number + 1} + 1") for number in range(499)]
    told = filled.refuses("GetMetricData", **ask(*chain, query("e499")))
    assert "needs too many other expressions" in told[1]


def doubled(first, last, joined):
    """Expressions each of which takes the one before many times."""
    names = ["m1", *(f"e{number}" for number in range(first, last))]
    return [
        expression(name, joined.format(before=before), ReturnData=name == names[-1])
        for before, name in pairwise(names)
    ]


@pytest.mark.parametrize(
    "queries",
    [
        doubled(0, 6, "[" + ",".join(["{before}"] * 400) + "]"),
        doubled(0, 50, "+".join(["{before}"] * 400)),
        doubled(0, 50, "+".join(["SUM([{before}])"] * 130)),
        doubled(0, 50, "+".join(["FILL({before},LINEAR)"] * 90)),
        doubled(0, 1, "SUM([" + ",".join(["1"] * 1000) + "])"),
    ],
    ids=["arrays", "operators", "functions", "fillings", "numbers"],
)
def test_the_work_of_expressions_has_a_bound(filled, monkeypatch, queries):
    monkeypatch.setattr(evaluator, "MAX_POINTS", 10_000)
    name = "none" if queries[0]["Expression"].startswith("[") else "m"
    metric = query("m1", name, ReturnData=False)
    code, message = filled.refuses("GetMetricData", **ask(metric, *queries, EndTime=LATER))
    assert code == "ValidationError"
    assert "more than 10,000 datapoints" in message


def test_long_sums_are_not_nested(filled):
    queries = [expression("e1", "+".join("a" * 1000)), query("a", ReturnData=False)]
    answer = filled.GetMetricData(**ask(*queries))
    assert values(answer)["e1"] == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SUM([big, big]) + m1", [0, 1, 2, 3, 4]),
        ("AVG([big, big]) + m1", [0, 1, 2, 3, 4]),
        ("STDDEV([big, -big])", [BIG] * 5),
        ("RUNNING_SUM(big)", [BIG]),
        ("DIFF(IF(m1 > 1, big, -big))", [0, 0, 0]),
        ("RATE(IF(m1 > 1, big, -big))", [0, 0, pytest.approx(0)]),
        ("FILL(IF(m2, IF(m1 > 0, big, -big)), LINEAR)", [-BIG, 0, BIG]),
        ("SUM(big) + m1", []),
        ("FIRST(SORT([big, m1], SUM, ASC))", [0, 1, 2, 3, 4]),
        ("SUM(SLICE([m1], MAX(RUNNING_SUM(big)) / MAX(big) - 1))", [0, 1, 2, 3, 4]),
    ],
)
def test_results_that_are_too_large_are_left_out(filled, text, expected):
    queries = [
        expression("e1", text),
        expression("big", "0 * m1 + 2 ^ 1023 + (2 ^ 1023 - 2 ^ 971)", ReturnData=False),
        query("m1", ReturnData=False),
        query("m2", "n", ReturnData=False),
    ]
    (result,) = filled.GetMetricData(**ask(*queries))["MetricDataResults"]
    assert result["Values"] == expected


def test_periods_of_ten_seconds(cloudwatch):
    for second in (0, 10, 30):
        datum = {"MetricName": "m", "Value": 1.0 + second, "StorageResolution": 1}
        datum["Timestamp"] = NOON + timedelta(seconds=second)
        cloudwatch.PutMetricData(Namespace="Mine", MetricData=[datum])
    queries = [expression("e1", "FILL(m1, 0)"), query("m1", Period=10)]
    end = {"EndTime": NOON + timedelta(seconds=40)}
    assert values(cloudwatch.GetMetricData(**ask(*queries, **end))) == {
        "e1": [1, 11, 0, 31],
        "m1": [1, 11, 31],
    }


def test_deviations_are_those_of_the_population_and_quick():
    series = {second: [second % 7, second % 11, 1e9, 0.1] for second in range(20_000)}
    arrays = [
        TimeSeries("", {second: values[one] for second, values in series.items()}, 60)
        for one in range(4)
    ]
    began = time.perf_counter()
    result = FUNCTIONS["STDDEV"][2](None, [arrays])
    taken = time.perf_counter() - began
    began = time.perf_counter()
    expected = {second: statistics.pstdev(values) for second, values in series.items()}
    assert result.points == pytest.approx(expected)
    assert taken < (time.perf_counter() - began) / 2
