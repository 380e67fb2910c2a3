"""Labels of GetMetricData: as CloudWatch makes them, and with dynamic values."""

import time

import pytest

from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.cloudwatch.labels import label_of
from sagehen.services.monitoring.cloudwatch.queries import read_queries
from support.metric_queries import ask, expression, query


def labels(cloudwatch, *queries, **params):
    answer = cloudwatch.GetMetricData(**ask(*queries, **params))
    return [result["Label"] for result in answer["MetricDataResults"]]


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ([{}], ["m"]),
        ([{}, {}], ["m", "m"]),
        ([{"Stat": "Sum"}, {"Stat": "Average"}], ["m Sum", "m Average"]),
        ([{"Period": 60}, {"Period": 30}], ["m 60", "m 30"]),
        ([{"Period": 1}, {"Period": 10}], ["m 1", "m 10"]),
        (
            [{"Stat": "Sum", "Period": 60}, {"Stat": "p90", "Period": 30}],
            ["m Sum 60", "m p90 30"],
        ),
        ([{"Stat": "Sum", "Label": "Mine"}, {"Stat": "Average"}], ["Mine", "m Average"]),
    ],
)
def test_labels_say_in_what_queries_differ(cloudwatch, stats, expected):
    queries = [query(f"m{number}", **stat) for number, stat in enumerate(stats)]
    assert labels(cloudwatch, *queries) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("plain $ {MAX}", "plain $ {MAX}"),
        ("of [max: ${MAX}, min: ${MIN}]", "of [max: 4, min: 0]"),
        ("${AVG} ${SUM} ${DATAPOINT_COUNT}", "2 10 5"),
        ("${FIRST}-${LAST}: ${FIRST_LAST_RANGE}, ${MIN_MAX_RANGE}", "0-4: 4, 4"),
        ("${LABEL}!", "m!"),
        ("${PROP('Namespace')}/${PROP('MetricName')}", "Mine/m"),
        ("${PROP('Stat')} ${PROP('Period')}", "Sum 60"),
        ("${PROP('AccountId')} ${PROP('Region')}", "000000000000 us-east-1"),
        ("<${PROP('Dim.Host')}>", "<>"),
    ],
)
def test_dynamic_values(filled, label, expected):
    assert labels(filled, query(Label=label)) == [expected]
    options = {"LabelOptions": {"Timezone": "+0130"}}
    assert labels(filled, query(Label=label), MaxDatapoints=1, **options) == [expected]


def test_dynamic_values_of_dimensions_and_expressions(cloudwatch):
    cloudwatch.put("m", 1.5, Host="a")
    dimensions = [{"Name": "Host", "Value": "a"}]
    metric = {"Namespace": "Mine", "MetricName": "m", "Dimensions": dimensions}
    queries = [
        {**query(Metric=metric), "Label": "${PROP('Dim.Host')} ${PROP('Dim.None')}${MAX}"},
        expression("e1", "m1 * 2", Label="${LABEL} ${LAST} ${PROP('Stat')}"),
        expression("e2", "METRICS() + 1", Label="${MIN}"),
        {**query("m2", "none"), "Label": "none: ${MAX} ${DATAPOINT_COUNT}"},
    ]
    assert labels(cloudwatch, *queries) == [
        "a 1.5",
        "e1 3 ",
        "2.5  2.5",
        " none:  0",
        "none:  0",
    ]


def test_metric_name_that_looks_like_a_dynamic_value_stays(cloudwatch):
    assert labels(cloudwatch, query("m1", "${Colour}")) == ["${Colour}"]


def test_numbers_in_labels_are_written_in_full(cloudwatch):
    cloudwatch.put("m", 1e20)
    assert labels(cloudwatch, query(Label="${MAX}")) == ["100000000000000000000"]


@pytest.mark.parametrize("name", ["SUM", "AVG", "FIRST_LAST_RANGE", "MIN_MAX_RANGE"])
def test_values_that_overflow_are_empty(filled, name):
    huge = expression("e1", "(m1 - 2) * 8e307", Label=f"<${{{name}}}>")
    assert labels(filled, {**query("m1"), "ReturnData": False}, huge) == ["<>"]


def test_long_label_takes_no_long_time(cloudwatch):
    label = "${" * 10_000
    began = time.thread_time()
    assert labels(cloudwatch, query(Label=label)) == [label]
    assert time.thread_time() - began < 0.5


def test_each_dynamic_value_is_computed_once():
    request = ask(query("m1", Label="${MAX}" * 2000))
    (read,) = read_queries(request["MetricDataQueries"])
    points = {second: float(second) for second in range(10_000)}
    began = time.thread_time()
    assert (
        label_of(read.label, read, points, ArnMaker("000000000000", "us-east-1")) == "9999" * 2000
    )
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("${MAX_TIME}", "Not implemented by Sagehen: ${MAX_TIME}"),
        ("${FIRST_LAST_TIME_RANGE}", "Not implemented by Sagehen: ${FIRST_LAST_TIME_RANGE}"),
        ("${Max}", "${Max}"),
        ("${PROP('Colour')}", "${PROP('Colour')}"),
    ],
)
def test_dynamic_values_that_are_refused(cloudwatch, label, words):
    code, message = cloudwatch.refuses("GetMetricData", **ask(query(Label=label)))
    assert code == "ValidationError"
    assert words in message


@pytest.mark.parametrize("zone", ["", "0130", "+1:30", "Europe/Berlin"])
def test_time_zones_that_are_refused(cloudwatch, zone):
    asked = ask(query(), LabelOptions={"Timezone": zone})
    code, message = cloudwatch.refuses("GetMetricData", **asked)
    assert code == "ValidationError"
    assert "LabelOptions.Timezone" in message


def test_other_accounts_are_refused(filled):
    own = {**query(), "AccountId": "000000000000"}
    assert labels(filled, own) == ["m"]
    other = {**query("m2"), "AccountId": "111111111111"}
    assert filled.refuses("GetMetricData", **ask(own, other)) == (
        "ValidationError",
        "The query 'm2' asks for metrics of the account 111111111111; Sagehen has those of "
        "000000000000 only.",
    )
