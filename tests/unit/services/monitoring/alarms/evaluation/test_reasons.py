"""State reasons in CloudWatch's words."""

import json

import pytest

from sagehen.services.monitoring.alarms.evaluation.evaluate import evaluate, window_of
from sagehen.services.monitoring.alarms.evaluation.reasons import Datapoint, as_java, as_timestamp
from sagehen.services.monitoring.alarms.records import AlarmState

START = 1570035540  # 02/10/19 16:59:00
OK, ALARM, UNKNOWN = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA


def definition(periods=1, to_alarm=None, **changes):
    read = {
        "Period": 60,
        "EvaluationPeriods": periods,
        "Threshold": 50,
        "ComparisonOperator": "GreaterThanThreshold",
        "Statistic": "Average",
        **changes,
    }
    return read if to_alarm is None else {**read, "DatapointsToAlarm": to_alarm}


def reason(values, present=OK, **of_alarm):
    """`values`: newest first, as in the reason."""
    points = [
        Datapoint(START - 60 * age, value, None if value is None else 1.0)
        for age, value in enumerate(values)
    ]
    return evaluate(definition(**of_alarm), points, present, START + 340.985).reason


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        (
            [99.5, None, None],
            {"to_alarm": 1},
            "Threshold Crossed: 1 out of the last 1 datapoints [99.5 (02/10/19 16:59:00)] was "
            "greater than the threshold (50.0) (minimum 1 datapoint for OK -> ALARM transition).",
        ),
        (
            [0.0666851903306472, None, None],
            {"to_alarm": 1, "present": ALARM},
            "Threshold Crossed: 1 out of the last 1 datapoints [0.0666851903306472 (02/10/19 "
            "16:59:00)] was not greater than the threshold (50.0) (minimum 1 datapoint for ALARM "
            "-> OK transition).",
        ),
        (
            [0.0],
            {"ComparisonOperator": "LessThanThreshold", "Threshold": 20},
            "Threshold Crossed: 1 datapoint [0.0 (02/10/19 16:59:00)] was less than the threshold "
            "(20.0).",
        ),
        (
            [0.0, 1.0],
            {"periods": 2, "present": ALARM, "Threshold": 42},
            "Threshold Crossed: 2 datapoints [0.0 (02/10/19 16:59:00), 1.0 (02/10/19 16:58:00)] "
            "were not greater than the threshold (42.0).",
        ),
        (
            [0.0] * 5,
            {"periods": 5, "to_alarm": 5, "ComparisonOperator": "LessThanThreshold"},
            "Threshold Crossed: 5 out of the last 5 datapoints were less than the threshold "
            "(50.0). The most recent datapoints which crossed the threshold: [0.0 (02/10/19 "
            "16:59:00), 0.0 (02/10/19 16:58:00), 0.0 (02/10/19 16:57:00), 0.0 (02/10/19 "
            "16:56:00)] (minimum 5 datapoints for OK -> ALARM transition).",
        ),
        (
            [None] * 7,
            {"periods": 5},
            "Insufficient Data: 5 datapoints were unknown.",
        ),
        ([None] * 3, {}, "Insufficient Data: 1 datapoint was unknown."),
        (
            [None] * 3,
            {"TreatMissingData": "breaching"},
            "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint "
            "was treated as [Breaching].",
        ),
        (
            [None] * 4,
            {"periods": 2, "TreatMissingData": "notBreaching", "present": ALARM},
            "Threshold Crossed: no datapoints were received for 2 periods and 2 missing datapoints "
            "were treated as [NonBreaching].",
        ),
        (
            [None, 1.0, None, None, None],
            {"periods": 3, "to_alarm": 2, "TreatMissingData": "breaching"},
            "Threshold Crossed: 1 datapoint was received for 3 periods and 2 missing datapoints "
            "were treated as [Breaching].",
        ),
        (
            [613.0] + [None] * 21,
            {
                "periods": 20,
                "to_alarm": 1,
                "TreatMissingData": "notBreaching",
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "Threshold": 1,
            },
            "Threshold Crossed: 1 out of the last 20 datapoints [613.0 (02/10/19 16:59:00)] was "
            "greater than or equal to the threshold (1.0) and 19 missing datapoints were treated "
            "as [NonBreaching] (minimum 1 datapoint for OK -> ALARM transition).",
        ),
    ],
)
def test_reasons(values, more, expected):
    assert reason(values, **more) == expected


def test_the_newest_points_come_last_in_the_data():
    points = [Datapoint(START - 60 * age, float(age), 2.0) for age in range(4)]
    points.insert(1, Datapoint(START - 30, None))
    evaluation = evaluate(definition(periods=3), points, UNKNOWN, START + 340.985)
    assert evaluation.values == (0.0, 1.0, 2.0)
    data = json.loads(evaluation.reason_data)
    assert data["queryDate"] == "2019-10-02T17:04:40.985+0000"
    assert data["startDate"] == "2019-10-02T16:57:00.000+0000"
    assert data["recentDatapoints"] == [2.0, 1.0, 0.0]
    assert [one["value"] for one in data["evaluatedDatapoints"]] == [0.0, 1.0, 2.0]


def test_data_without_datapoints_lists_the_holes():
    points = [Datapoint(START - 60 * age, None) for age in range(4)]
    data = json.loads(evaluate(definition(periods=2), points, OK, START).reason_data)
    assert data["recentDatapoints"] == []
    assert "startDate" not in data
    assert data["evaluatedDatapoints"] == [
        {"timestamp": "2019-10-02T16:59:00.000+0000"},
        {"timestamp": "2019-10-02T16:58:00.000+0000"},
    ]


def test_reason_data_has_a_bound():
    points = [Datapoint(START - 60 * age, 1 / (age + 3), 1.0) for age in range(1442)]
    evaluation = evaluate(definition(periods=1440, to_alarm=1440), points, UNKNOWN, START)
    assert len(evaluation.reason_data) < 4000
    assert len(evaluation.reason) < 1023


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.0"),
        (50, "50.0"),
        (99.50160229693434, "99.50160229693434"),
        (-2.5, "-2.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-12345678.0, "-1.2345678E7"),
        (1e16, "1.0E16"),
        (1.5e300, "1.5E300"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (1e-7, "1.0E-7"),
    ],
)
def test_numbers_as_java_prints_them(number, text):
    assert as_java(number) == text


def test_times_have_milliseconds():
    assert as_timestamp(1_600_000_000.9996) == "2020-09-13T12:26:41.000+0000"
    assert as_timestamp(1_600_000_000.25) == "2020-09-13T12:26:40.250+0000"


@pytest.mark.parametrize(
    ("period", "periods", "now", "expected"),
    [
        (60, 1, 120 + 5.9, (-120, 60)),
        (60, 1, 120 + 6.0, (-60, 120)),
        (60, 3, 3600 + 30, (3300, 3600)),
        (300, 1, 3660 + 30, (2760, 3660)),
        (10, 3, 100 + 6, (50, 100)),
        (30, 1, 100 + 6, (10, 100)),
        (3600, 24, 90_000 + 100, (90_060 - 26 * 3600, 90_060)),
        (3600, 25, 97_000, (93_600 - 27 * 3600, 93_600)),
    ],
)
def test_the_range_ends_with_the_last_whole_period(period, periods, now, expected):
    window = window_of({"Period": period, "EvaluationPeriods": periods}, now)
    assert (window.start, window.end) == expected
