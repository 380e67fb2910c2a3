"""PutMetricData."""

from datetime import UTC, datetime, timedelta

import pytest

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DATUM = {"MetricName": "m", "Value": 1.0}


def seen(cloudwatch, name="m", **more):
    names = ["SampleCount", "Sum", "Minimum", "Maximum"]
    answer = cloudwatch.GetMetricStatistics(
        Namespace="Mine",
        MetricName=name,
        StartTime=NOON - timedelta(days=14),
        EndTime=NOON + timedelta(days=1),
        Period=86_400 * 30,
        Statistics=names,
        **more,
    )
    return [tuple(point[name] for name in names) for point in answer["Datapoints"]]


def test_values_in_each_form(cloudwatch):
    counted = {"SampleCount": 4, "Sum": 20, "Minimum": 2, "Maximum": 9}
    data = [
        DATUM,
        {"MetricName": "m", "Values": [3.0, 4.0], "Counts": [2.0, 1.0]},
        {"MetricName": "m", "Values": [5.0]},
        {"MetricName": "m", "StatisticValues": counted},
        {"MetricName": "m", "Value": -2.0, "StorageResolution": 1},
    ]
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=data)
    assert seen(cloudwatch) == [(10, 34, -2, 9)]


def test_values_beside_a_set_count_together(cloudwatch):
    """CloudWatch takes both in one datum, but not a single value beside one of them."""
    counted = {"SampleCount": 4, "Sum": 20, "Minimum": 2, "Maximum": 9}
    datum = {"MetricName": "m", "Values": [1.0], "Counts": [2.0], "StatisticValues": counted}
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=[datum])
    assert seen(cloudwatch) == [(6, 22, 1, 9)]


def test_values_of_a_time_of_their_own(cloudwatch):
    for days in (-13.9, -1, 0, 1 / 12):
        at = NOON + timedelta(days=days)
        cloudwatch.PutMetricData(Namespace="Mine", MetricData=[{**DATUM, "Timestamp": at}])
    assert sum(count for count, *_ in seen(cloudwatch)) == 4


def test_counts_beyond_the_integers_of_the_stored_form(cloudwatch):
    data = [{"MetricName": "m", "Values": [1.0, 2.0], "Counts": [1e30, 2.5]}]
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=data)
    assert seen(cloudwatch) == [(1e30, 1e30, 1, 2)]


def test_all_or_none(cloudwatch):
    data = [DATUM, {"MetricName": "m", "Value": 1e300}]
    cloudwatch.refuses("PutMetricData", Namespace="Mine", MetricData=data)
    assert seen(cloudwatch) == []
    cloudwatch.configure(max_metric_series=2)
    data = [{"MetricName": f"m{number}", "Value": 1.0} for number in range(3)]
    code, message = cloudwatch.refuses("PutMetricData", Namespace="Mine", MetricData=data)
    assert (code, "max_metric_series" in message) == ("LimitExceeded", True)
    assert cloudwatch.ListMetrics()["Metrics"] == []
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=data[:2])


def test_a_thousand_at_once(cloudwatch):
    cloudwatch.PutMetricData(Namespace="Mine", MetricData=[DATUM] * 1000)
    assert seen(cloudwatch) == [(1000, 1000, 1, 1)]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (None, "MissingParameter", "MetricData is required"),
        ([], "MissingParameter", "MetricData is required"),
        (
            [DATUM] * 1001,
            "InvalidParameterValue",
            "The collection MetricData must not have a size greater than 1000.",
        ),
        ([{"MetricName": "m"}], "MissingParameter", "MetricData.member.1.Value is required"),
        ([{"Value": 1.0}], "ValidationError", "metricName"),
        ([{**DATUM, "MetricName": "\u00e9"}], "InvalidParameterValue", "MetricName"),
        ([{**DATUM, "Values": [1.0]}], "InvalidParameterCombination", "mutually exclusive"),
        ([{**DATUM, "Counts": [1.0]}], "InvalidParameterCombination", "Counts"),
        (
            [DATUM, {**DATUM, "Value": float("nan")}],
            "InvalidParameterValue",
            "The value NaN for parameter MetricData.member.2.Value is invalid.",
        ),
        (
            [{**DATUM, "Value": float("-inf")}],
            "InvalidParameterValue",
            "The value -Infinity for parameter MetricData.member.1.Value is invalid.",
        ),
        ([{**DATUM, "Value": -(2.0**361)}], "InvalidParameterValue", "member.1.Value"),
        ([{**DATUM, "StorageResolution": 5}], "InvalidParameterValue", "StorageResolution"),
        ([{**DATUM, "Unit": "Litres"}], "ValidationError", "enum value set"),
        ([{**DATUM, "Timestamp": NOON - timedelta(days=15)}], "InvalidParameterValue", "weeks"),
        ([{**DATUM, "Timestamp": NOON + timedelta(hours=3)}], "InvalidParameterValue", "hours"),
        ([{"MetricName": "m", "Values": []}], "MissingParameter", "Values"),
        ([{"MetricName": "m", "Values": [1.0] * 151}], "InvalidParameterValue", "150"),
        (
            [{"MetricName": "m", "Values": [1.0], "Counts": [1.0] * 2}],
            "InvalidParameterValue",
            "size",
        ),
        (
            [{"MetricName": "m", "Values": [1.0], "Counts": [-1.0]}],
            "InvalidParameterValue",
            "Counts",
        ),
        ([{"MetricName": "m", "Values": [1.0], "Counts": [0.0]}], "InvalidParameterValue", "not 0"),
    ],
)
def test_what_is_refused(cloudwatch, data, code, words):
    given = {} if data is None else {"MetricData": data}
    told = cloudwatch.refuses("PutMetricData", Namespace="Mine", **given)
    assert told[0] == code
    assert words in told[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SampleCount": 0}, "SampleCount"),
        ({"SampleCount": -1}, "SampleCount"),
        ({"Minimum": 5}, "Minimum"),
        ({"Sum": float("nan")}, "Sum"),
    ],
)
def test_counted_sets_that_cannot_be(cloudwatch, changes, words):
    counted = {"SampleCount": 4, "Sum": 8, "Minimum": 1, "Maximum": 4, **changes}
    data = [{"MetricName": "m", "StatisticValues": counted}]
    code, message = cloudwatch.refuses("PutMetricData", Namespace="Mine", MetricData=data)
    assert (code, words in message) == ("InvalidParameterValue", True)


@pytest.mark.parametrize("namespace", ["AWS/SageMaker", "AWS/", "/aws/sagemaker/Endpoints"])
def test_the_services_namespaces_are_theirs(cloudwatch, namespace):
    told = cloudwatch.refuses("PutMetricData", Namespace=namespace, MetricData=[DATUM])
    assert told[0] == "InvalidParameterValue"
    assert namespace in told[1]


def test_entities_are_refused_by_name(cloudwatch):
    entity = {"MetricData": [DATUM]}
    told = cloudwatch.refuses("PutMetricData", Namespace="Mine", EntityMetricData=[entity])
    assert "Not implemented by Sagehen yet: EntityMetricData" in told[1]
