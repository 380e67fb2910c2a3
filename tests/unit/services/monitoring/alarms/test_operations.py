"""The operations on alarms, as a client calls them."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from support.fixtures.api_alarms import NOON, POLICY, TOPIC

ARN = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"


def names(answer, member="MetricAlarms"):
    return [alarm["AlarmName"] for alarm in answer[member]]


def test_a_new_alarm_as_it_is_described(alarms):
    alarms.put("a b/c", AlarmDescription="why", TreatMissingData="ignore", Tags=[])
    (alarm,) = alarms.DescribeAlarms(AlarmNames=["a b/c"])["MetricAlarms"]
    now = datetime.fromtimestamp(alarms.clock.now(), UTC)
    assert alarm == {
        "AlarmName": "a b/c",
        "AlarmArn": f"{ARN}a b/c",
        "AlarmDescription": "why",
        "AlarmConfigurationUpdatedTimestamp": now,
        "ActionsEnabled": True,
        "OKActions": [],
        "AlarmActions": [TOPIC],
        "InsufficientDataActions": [],
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "Unchecked: Initial alarm creation",
        "StateUpdatedTimestamp": now,
        "StateTransitionedTimestamp": now,
        "MetricName": "m",
        "Namespace": "Mine",
        "Statistic": "Sum",
        "Dimensions": [],
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 5.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "ignore",
    }


def test_putting_again_replaces_everything_but_the_state(alarms):
    alarms.put(AlarmDescription="old", Unit="Count")
    alarms.set_state("a", "OK")
    alarms.clock.seconds += 5
    alarms.put(Threshold=9.0)
    alarm = alarms.alarm()
    assert (alarm["Threshold"], alarm["StateValue"]) == (9.0, "OK")
    assert not {"AlarmDescription", "Unit"} & alarm.keys()
    assert alarm["StateUpdatedTimestamp"] == NOON + timedelta(seconds=10)
    assert alarm["AlarmConfigurationUpdatedTimestamp"] == NOON + timedelta(seconds=15)
    assert alarms.history()[-1] == 'Alarm "a" updated'
    change = alarms.events[-1].detail
    assert change["operation"] == "update"
    assert change["configuration"]["threshold"] == 9.0
    assert change["previousConfiguration"]["threshold"] == 5.0


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"MetricName": None}, "ValidationError", "Exactly one of MetricName"),
        ({"Namespace": None}, "MissingParameter", "Namespace"),
        ({"Period": None}, "MissingParameter", "Period"),
        ({"Threshold": None}, "MissingParameter", "Threshold"),
        ({"EvaluationPeriods": None}, "MissingParameter", "EvaluationPeriods"),
        ({"ComparisonOperator": None}, "MissingParameter", "ComparisonOperator"),
        ({"Statistic": None}, "InvalidParameterCombination", "Exactly one of the parameters"),
        ({"ExtendedStatistic": "p9"}, "InvalidParameterCombination", "Exactly one"),
        (
            {"Statistic": None, "ExtendedStatistic": "P9"},
            "InvalidParameterValue",
            "The value P9 for parameter ExtendedStatistic is not supported.",
        ),
        ({"Period": 15}, "ValidationError", "must be 10, 20, 30 or a multiple of 60"),
        ({"Period": 5}, "ValidationError", "must be 10, 20, 30 or a multiple of 60"),
        ({"Period": 61}, "ValidationError", "multiple of 60"),
        ({"DatapointsToAlarm": 2}, "ValidationError", "less than or equal to EvaluationPeriods"),
        ({"Period": 600, "EvaluationPeriods": 145}, "ValidationError", "more than a day"),
        ({"Period": 3600, "EvaluationPeriods": 169}, "ValidationError", "more than a week"),
        (
            {"TreatMissingData": "guess"},
            "ValidationError",
            "Option guess is not supported. Supported options for parameter TreatMissingData are "
            "breaching, notBreaching, ignore and missing.",
        ),
        (
            {"EvaluateLowSampleCountPercentile": "x"},
            "ValidationError",
            "Option x is not supported. Supported options for parameter "
            "EvaluateLowSampleCountPercentile are evaluate and ignore.",
        ),
        ({"AlarmActions": ["topic"]}, "ValidationError", "Invalid arn syntax: topic"),
        (
            {"OKActions": [TOPIC.replace("us-east-1", "eu-west-1")]},
            "ValidationError",
            "Invalid region eu-west-1 specified. Only us-east-1 is supported.",
        ),
        (
            {"AlarmActions": ["arn:aws:lambda:us-east-1:000000000000:function:f"]},
            "InvalidParameterValue",
            "Not implemented by Sagehen yet: the action arn:aws:lambda",
        ),
        ({"AlarmName": "a\nb"}, "ValidationError", "control"),
        ({"Dimensions": [{"Name": ":a", "Value": "b"}]}, "InvalidParameterValue", "Dimensions"),
        ({"ThresholdMetricId": "m1"}, "InvalidParameterValue", "anomaly detection"),
        (
            {"ComparisonOperator": "GreaterThanUpperThreshold"},
            "InvalidParameterValue",
            "anomaly detection",
        ),
        (
            {"EvaluationCriteria": {"PromQLCriteria": {"Query": "up"}}},
            "InvalidParameterValue",
            "PromQL",
        ),
        ({"EvaluationInterval": 60}, "InvalidParameterValue", "PromQL"),
        (
            {"EvaluationWindow": {"WallClockWindow": {"Timezone": "UTC"}}},
            "InvalidParameterValue",
            "WallClockWindow",
        ),
        (
            {"WarmUpConfiguration": {"WarmUpPeriodDurationInMinutes": 5}},
            "InvalidParameterValue",
            "WarmUpConfiguration",
        ),
        (
            {"ActionConfiguration": {"AlarmTagsPropagation": {"Enabled": True}}},
            "InvalidParameterValue",
            "ActionConfiguration",
        ),
        ({"Tags": [{"Key": "k", "Value": "v"}] * 2}, "InvalidParameterValue", "more than once"),
        ({"Threshold": float("inf")}, "InvalidParameterValue", "finite"),
    ],
)
def test_what_is_refused(alarms, changes, code, words):
    told = alarms.refuses("put", **changes)
    assert told[0] == code
    assert words in told[1]
    assert alarms.DescribeAlarms()["MetricAlarms"] == []


def metric(query_id, period=60, **more):
    stat = {"Metric": {"Namespace": "n", "MetricName": "m"}, "Period": period, "Stat": "Sum"}
    return {"Id": query_id, "MetricStat": stat, "ReturnData": False, **more}


def expression(text, **more):
    return {"Id": "e1", "Expression": text, "ReturnData": True, **more}


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([], "at least one element"),
        ([metric("m1")], "At least one"),
        ([metric("m1", ReturnData=True), expression("m1")], "Exactly one element"),
        ([metric("m1"), metric("m2", 120), expression("m1 + m2")], "same Period"),
        ([metric(f"m{number}") for number in range(11)] + [expression("m1")], "at most 10"),
        ([metric("m1"), expression("SEARCH('{a} b', 'Sum', 60)")], "SEARCH is not supported"),
        ([metric("m1"), expression("METRICS()")], "several time series"),
        ([metric("m1"), expression("SUM(m1)")], "TIME_SERIES()"),
        ([metric("m1"), expression("m2")], "no query with the Id 'm2'"),
        ([metric("m1"), expression("m1 +")], "cannot be read"),
        ([metric("m1", AccountId="1"), expression("m1")], "AccountId"),
        ([metric("m1", 15), expression("m1", Period=15)], "Period"),
        ([metric("m1", 1), expression("m1", Period=1)], "must be 10, 20, 30"),
    ],
)
def test_expressions_that_are_refused(alarms, queries, words):
    own = dict.fromkeys(["MetricName", "Namespace", "Statistic", "Period"])
    assert words in alarms.refuses("put", **own, Metrics=queries)[1]


def test_metrics_and_a_metric_at_once(alarms):
    told = alarms.refuses("put", Metrics=[metric("m1", ReturnData=True)])
    assert told[0] == "InvalidParameterCombination"


def test_as_many_alarms_as_there_may_be(alarms):
    for number in range(100):
        alarms.put(f"a{number}")
    code, message = alarms.refuses("put", name="one more")
    assert (code, "max_alarms" in message) == ("LimitExceeded", True)
    alarms.put("a1", Threshold=9.0)


def test_lists(alarms):
    for name in ("ab", "aa", "b"):
        alarms.put(name)
    alarms.put("other", AlarmActions=[POLICY])
    alarms.put_composite("aac", "ALARM(aa)")
    alarms.set_state("ab", "OK")
    ask = alarms.DescribeAlarms
    assert names(ask()) == ["aa", "ab", "b", "other"]
    assert names(ask(AlarmNamePrefix="a")) == ["aa", "ab"]
    assert names(ask(AlarmNames=["b", "gone", "aac"])) == ["b"]
    assert names(ask(StateValue="OK")) == ["ab"]
    assert names(ask(ActionPrefix="arn:aws:auto")) == ["other"]
    both = ask(AlarmTypes=["MetricAlarm", "CompositeAlarm"], AlarmNamePrefix="a")
    assert (names(both), names(both, "CompositeAlarms")) == (["aa", "ab"], ["aac"])
    assert names(ask(AlarmTypes=["LogAlarm"])) == []
    assert names(ask(ChildrenOfAlarmName="aac")) == ["aa"]
    assert names(ask(ParentsOfAlarmName="aa"), "CompositeAlarms") == ["aac"]
    assert ask()["LogAlarms"] == []


def test_a_prefix_is_no_pattern(alarms):
    for name in ("a_b", "aXb", "A_b", "a%"):
        alarms.put(name)
    assert names(alarms.DescribeAlarms(AlarmNamePrefix="a_")) == ["a_b"]
    assert names(alarms.DescribeAlarms(AlarmNamePrefix="a%")) == ["a%"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages(alarms, limit):
    for number in range(7):
        alarms.put(f"a{number}", AlarmActions=[POLICY] if number % 2 else [TOPIC])
    for more in ({}, {"ActionPrefix": "arn:aws:autoscaling"}):
        found, token = [], {}
        while True:
            page = alarms.DescribeAlarms(MaxRecords=limit, **more, **token)
            assert len(page["MetricAlarms"]) <= limit
            found += names(page)
            if "NextToken" not in page:
                break
            token = {"NextToken": page["NextToken"]}
        assert found == [f"a{number}" for number in range(7) if not more or number % 2]
    assert alarms.refuses("DescribeAlarms", NextToken="?")[0] == "InvalidNextToken"


@pytest.mark.parametrize(
    "params",
    [
        {"AlarmNames": ["a"], "AlarmNamePrefix": "a"},
        {"ChildrenOfAlarmName": "a", "StateValue": "OK"},
        {"ChildrenOfAlarmName": "a", "ParentsOfAlarmName": "a"},
    ],
)
def test_filters_that_exclude_one_another(alarms, params):
    assert alarms.refuses("DescribeAlarms", **params)[0] == "InvalidParameterCombination"


def test_alarms_of_a_metric(alarms):
    dimensions = [{"Name": "a", "Value": "1"}, {"Name": "b", "Value": "2"}]
    alarms.put("one", Dimensions=dimensions)
    alarms.put("two", Dimensions=dimensions[:1])
    alarms.put("three", Dimensions=dimensions, Statistic="Average", Unit="Count")
    asked = {"MetricName": "m", "Namespace": "Mine", "Dimensions": dimensions[::-1]}
    assert names(alarms.DescribeAlarmsForMetric(**asked)) == ["one", "three"]
    assert names(alarms.DescribeAlarmsForMetric(**asked, Statistic="Sum")) == ["one"]
    assert names(alarms.DescribeAlarmsForMetric(**asked, Unit="Count")) == ["three"]
    assert names(alarms.DescribeAlarmsForMetric(**asked, Period=300)) == []
    assert names(alarms.DescribeAlarmsForMetric(MetricName="m", Namespace="Mine")) == []


def test_setting_a_state(alarms):
    alarms.put(AlarmActions=[TOPIC, POLICY])
    alarms.set_state("a", "ALARM", StateReasonData='{"recentDatapoints": [1, 2.5, null, true]}')
    assert alarms.alarm()["StateReason"] == "set"
    assert len(alarms.sent) == 1
    ((trigger, _),) = alarms.invoked
    assert trigger.values == (2.5, 1.0)
    (item,) = alarms.DescribeAlarmHistory(HistoryItemType="StateUpdate")["AlarmHistoryItems"]
    assert json.loads(item["HistoryData"]) == {
        "version": "1.0",
        "oldState": {
            "stateValue": "INSUFFICIENT_DATA",
            "stateReason": "Unchecked: Initial alarm creation",
        },
        "newState": {
            "stateValue": "ALARM",
            "stateReason": "set",
            "stateReasonData": {"recentDatapoints": [1, 2.5, None, True]},
        },
    }


def test_a_datapoint_that_is_too_large_is_none(alarms):
    alarms.put(AlarmActions=[POLICY])
    data = f'{{"recentDatapoints": [3, {"9" * 400}]}}'
    alarms.set_state("a", "ALARM", StateReasonData=data)
    ((trigger, _),) = alarms.invoked
    assert trigger.values == (3.0,)


def test_setting_the_same_state_only_gives_another_reason(alarms):
    alarms.put()
    alarms.set_state("a", "ALARM")
    alarms.SetAlarmState(AlarmName="a", StateValue="ALARM", StateReason="again")
    assert alarms.alarm()["StateReason"] == "again"
    assert len(alarms.sent) == 1


def test_a_policy_needs_data_of_a_set_state(alarms):
    alarms.put(AlarmActions=[POLICY])
    alarms.set_state("a", "ALARM")
    assert alarms.invoked == []
    assert "Metric data points must be provided" in alarms.history()[-1]


@pytest.mark.parametrize("data", ["", "no JSON", "[1]", "1"])
def test_reason_data_is_a_json_object(alarms, data):
    alarms.put()
    told = alarms.refuses("set_state", name="a", state="OK", StateReasonData=data)
    assert told[0] == "InvalidFormat"


def test_an_unknown_alarm(alarms):
    assert alarms.refuses("set_state", name="x", state="OK")[0] == "ResourceNotFound"
    assert alarms.refuses("DescribeAlarms", ChildrenOfAlarmName="x")[0] == "ResourceNotFound"
    alarms.DeleteAlarms(AlarmNames=["x"])
    alarms.EnableAlarmActions(AlarmNames=["x"])
    alarms.DisableAlarmActions(AlarmNames=["x"])


def test_deleted_alarms_keep_their_history(alarms):
    alarms.put("a", Tags=[{"Key": "k", "Value": "v"}])
    alarms.put("b")
    alarms.DeleteAlarms(AlarmNames=["a", "x"])
    assert names(alarms.DescribeAlarms()) == ["b"]
    assert alarms.history() == ['Alarm "a" created', 'Alarm "a" deleted']
    assert alarms.events[-1].detail["operation"] == "delete"
    alarms.put("a")
    assert alarms.ListTagsForResource(ResourceARN=f"{ARN}a")["Tags"] == []


def test_tags(alarms):
    alarms.put(Tags=[{"Key": "a", "Value": "1"}])
    alarms.put(Tags=[{"Key": "ignored", "Value": "1"}])
    arn = f"{ARN}a"
    alarms.TagResource(ResourceARN=arn, Tags=[{"Key": "b", "Value": ""}])
    alarms.UntagResource(ResourceARN=arn, TagKeys=["a"])
    assert alarms.ListTagsForResource(ResourceARN=arn)["Tags"] == [{"Key": "b", "Value": ""}]
    for unknown in ("arn:aws:sns:us-east-1:000000000000:a", "a"):
        assert alarms.refuses("ListTagsForResource", ResourceARN=unknown)[0] == (
            "ResourceNotFoundException"
        )
    alarms.DeleteAlarms(AlarmNames=["a"])
    assert alarms.ListTagsForResource(ResourceARN=arn)["Tags"] == []
    tag = {"ResourceARN": arn, "Tags": [{"Key": "b", "Value": ""}]}
    assert alarms.refuses("TagResource", **tag)[0] == "ResourceNotFoundException"


def test_pages_of_history(alarms):
    for number in range(5):
        alarms.put(Threshold=float(number))
        alarms.clock.seconds += 60
    alarms.put("b")
    found, token = [], {}
    while True:
        page = alarms.DescribeAlarmHistory(AlarmName="a", MaxRecords=2, **token)
        found += [item["Timestamp"] for item in page["AlarmHistoryItems"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    first = NOON + timedelta(seconds=10)
    assert found == [first + timedelta(minutes=minute) for minute in (4, 3, 2, 1, 0)]
    ranged = alarms.DescribeAlarmHistory(
        StartDate=first + timedelta(minutes=3), EndDate=first + timedelta(minutes=4)
    )
    assert len(ranged["AlarmHistoryItems"]) == 2
    assert len(alarms.DescribeAlarmHistory()["AlarmHistoryItems"]) == 6
    too_large = base64.urlsafe_b64encode(f"[{2**63}]".encode()).decode()
    for token in ("?", "W10=", "WyJhIl0=", too_large):
        assert alarms.refuses("DescribeAlarmHistory", NextToken=token)[0] == "InvalidNextToken"
