"""GetMetricStatistics."""

from datetime import UTC, datetime, timedelta

import pytest

from sagehen.services.monitoring.cloudwatch import sample_reads

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def ask(**changes):
    """Parameters; a member that is None is left out."""
    asked = {
        "Namespace": "Mine",
        "MetricName": "m",
        "StartTime": NOON,
        "EndTime": NOON + 60 * MINUTE,
        "Period": 60,
        "Statistics": ["Sum"],
        **changes,
    }
    return {name: value for name, value in asked.items() if value is not None}


def test_each_statistic(cloudwatch):
    cloudwatch.put("m", 1, 2, 6, unit="Seconds")
    names = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]
    answer = cloudwatch.GetMetricStatistics(**ask(Statistics=names))
    values = {"SampleCount": 3, "Average": 3, "Sum": 9, "Minimum": 1, "Maximum": 6}
    assert answer == {
        "Label": "m",
        "Datapoints": [{"Timestamp": NOON, "Unit": "Seconds", **values}],
    }


def test_percentiles(cloudwatch):
    cloudwatch.put("m", *range(1, 101))
    asked = ["p0", "p50", "p99", "p99.9", "p100", "p100.0"]
    answer = cloudwatch.GetMetricStatistics(**ask(Statistics=None, ExtendedStatistics=asked))
    (point,) = answer["Datapoints"]
    told = point["ExtendedStatistics"]
    assert (told["p0"], told["p100"], told["p100.0"]) == (1, 100, 100)
    assert told["p50"] == pytest.approx(50, rel=0.02)
    assert told["p99"] == pytest.approx(99, rel=0.02)


def test_percentiles_that_nobody_knows(cloudwatch):
    cloudwatch.put("m", -1, 2)
    counted = {"SampleCount": 9, "Sum": 50, "Minimum": 1, "Maximum": 9}
    datum = {"MetricName": "other", "Timestamp": NOON, "StatisticValues": counted}
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=[datum])
    for name in ("m", "other"):
        asked = ask(MetricName=name, Statistics=None, ExtendedStatistics=["p50"])
        (point,) = cloudwatch.GetMetricStatistics(**asked)["Datapoints"]
        assert point["ExtendedStatistics"] == {}


def test_periods_begin_at_the_start_asked_for(cloudwatch):
    for minute in range(10):
        cloudwatch.put("m", minute, at=NOON + minute * MINUTE)
    start = NOON + 2 * MINUTE + timedelta(seconds=34)
    answer = cloudwatch.GetMetricStatistics(
        **ask(StartTime=start, EndTime=NOON + 9 * MINUTE, Period=180)
    )
    told = [(one["Timestamp"], one["Sum"]) for one in answer["Datapoints"]]
    assert told == [
        (NOON + 2 * MINUTE, 2 + 3 + 4),
        (NOON + 5 * MINUTE, 5 + 6 + 7),
        (NOON + 8 * MINUTE, 8),
    ]


def test_the_end_is_not_in_it(cloudwatch):
    cloudwatch.put("m", 1, at=NOON)
    cloudwatch.put("m", 1, at=NOON + MINUTE)
    answer = cloudwatch.GetMetricStatistics(**ask(EndTime=NOON + MINUTE))
    assert [one["Timestamp"] for one in answer["Datapoints"]] == [NOON]
    answer = cloudwatch.GetMetricStatistics(**ask(EndTime=NOON + MINUTE + timedelta(seconds=1)))
    assert len(answer["Datapoints"]) == 2


def test_dimensions_are_matched_as_a_whole_in_any_order(cloudwatch):
    cloudwatch.put("m", 1, a="1", b="2")
    both = [{"Name": "b", "Value": "2"}, {"Name": "a", "Value": "1"}]
    assert cloudwatch.GetMetricStatistics(**ask(Dimensions=both))["Datapoints"]
    for wrong in (None, both[:1], [both[0], {"Name": "a", "Value": "2"}]):
        assert cloudwatch.GetMetricStatistics(**ask(Dimensions=wrong))["Datapoints"] == []


def test_units_are_kept_apart(cloudwatch):
    cloudwatch.put("m", 1, unit="Seconds")
    cloudwatch.put("m", 5, unit="Count")
    both = cloudwatch.GetMetricStatistics(**ask())["Datapoints"]
    assert sorted((one["Unit"], one["Sum"]) for one in both) == [("Count", 5), ("Seconds", 1)]
    one = cloudwatch.GetMetricStatistics(**ask(Unit="Seconds"))["Datapoints"]
    assert [point["Sum"] for point in one] == [1]
    assert cloudwatch.GetMetricStatistics(**ask(Unit="Bytes"))["Datapoints"] == []


def test_a_metric_that_is_not_there_has_no_points(cloudwatch):
    answer = cloudwatch.GetMetricStatistics(**ask(MetricName="nothing"))
    assert answer == {"Label": "nothing", "Datapoints": []}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"Statistics": None}, "InvalidParameterCombination", "At least one"),
        ({"ExtendedStatistics": ["p1"]}, "InvalidParameterCombination", "together"),
        ({"EndTime": NOON}, "InvalidParameterValue", "StartTime must be less than"),
        (
            {"EndTime": NOON + timedelta(microseconds=999_999)},
            "InvalidParameterValue",
            "The parameter StartTime must be less than the parameter EndTime.",
        ),
        ({"StartTime": NOON + 99 * MINUTE}, "InvalidParameterValue", "StartTime must be less"),
        ({"Period": 90}, "InvalidParameterValue", "multiple of 60"),
        ({"Period": 86_400 * 400}, "InvalidParameterValue", "at most a year"),
        ({"Statistics": ["Median"]}, "ValidationError", "enum value set"),
        ({"Unit": "Litres"}, "ValidationError", "enum value set"),
        ({"Namespace": ":n"}, "ValidationError", "regular expression"),
        ({"MetricName": "m" * 256}, "ValidationError", "length less than or equal to 255"),
        (
            {"Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}]},
            "InvalidParameterValue",
            "twice",
        ),
        ({"Dimensions": [{"Name": ":a", "Value": "1"}]}, "InvalidParameterValue", "member.1.Name"),
        ({"Dimensions": [{"Name": "a", "Value": " "}]}, "InvalidParameterValue", "member.1.Value"),
        ({"Dimensions": [{"Name": "a", "Value": "\u00e9"}]}, "InvalidParameterValue", "Value"),
        ({"Dimensions": [{"Name": "a", "Value": "1"}] * 31}, "ValidationError", "30"),
        (
            {"EndTime": NOON + 1441 * MINUTE},
            "InvalidParameterCombination",
            "You have requested up to 1441 datapoints, which exceeds the limit of 1440.",
        ),
    ],
)
def test_what_is_refused(cloudwatch, changes, code, words):
    told = cloudwatch.refuses("GetMetricStatistics", **ask(**changes))
    assert told[0] == code
    assert words in told[1]


@pytest.mark.parametrize(
    "wrong", ["p", "p-1", "p101", "p100.1", "tm", "P50", "p1e1", "TM(10:5)", "Sum", ""]
)
def test_statistics_that_are_not_kept(cloudwatch, wrong):
    asked = ask(Statistics=None, ExtendedStatistics=[wrong])
    assert cloudwatch.refuses("GetMetricStatistics", **asked)[0] == "InvalidParameterValue"


def test_as_many_points_as_there_may_be(cloudwatch):
    cloudwatch.put("m", 1)
    asked = ask(EndTime=NOON + 1440 * MINUTE)
    assert len(cloudwatch.GetMetricStatistics(**asked)["Datapoints"]) == 1


def test_a_day_in_minutes_from_within_a_minute(cloudwatch):
    cloudwatch.put("m", 1)
    half = timedelta(seconds=30)
    day = {"StartTime": NOON - half, "EndTime": NOON - half + 1440 * MINUTE}
    assert len(cloudwatch.GetMetricStatistics(**ask(**day))["Datapoints"]) == 1
    day["EndTime"] += timedelta(seconds=1)
    told = cloudwatch.refuses("GetMetricStatistics", **ask(**day))
    assert "1441 datapoints" in told[1]


@pytest.mark.parametrize("period", [1, 5])
def test_shortest_periods_have_the_finest_points_that_are_kept(cloudwatch, period):
    second = timedelta(seconds=1)
    fine = [{"MetricName": "f", "Value": float(number), "Timestamp": NOON + number * second,
             "StorageResolution": 1} for number in range(20)]  # fmt: skip
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=fine)
    cloudwatch.put("m", 7)
    short = {"MetricName": "f", "Period": period, "EndTime": NOON + MINUTE}

    def points(**changes):
        answer = cloudwatch.GetMetricStatistics(**ask(**{**short, **changes}))
        return [(point["Timestamp"], point.get("Sum")) for point in answer["Datapoints"]]

    later = NOON + 10 * second
    assert points(Statistics=["Sum"]) == [(NOON, 45), (later, 145)]
    assert points(Statistics=None, ExtendedStatistics=["p9"]) == [(NOON, None), (later, None)]
    assert points(MetricName="m", Statistics=["Sum"]) == [(NOON, 7)]
    long = ask(**{**short, "EndTime": NOON + 1441 * period * second})
    assert "1441" in cloudwatch.refuses("GetMetricStatistics", **long)[1]


def test_more_sketches_than_are_read(cloudwatch, monkeypatch):
    monkeypatch.setattr(sample_reads, "MAX_SKETCHES", 1)
    cloudwatch.put("m", 1, at=NOON)
    cloudwatch.put("m", 1, at=NOON + MINUTE)
    asked = ask(Statistics=None, ExtendedStatistics=["p50"])
    assert cloudwatch.refuses("GetMetricStatistics", **asked)[0] == "LimitExceeded"
