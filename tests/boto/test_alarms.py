"""CloudWatch's alarms through the whole server: from a value to the message in a queue."""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.events import make_queue, receive, remove
from support.server import Server, eventually


@pytest.fixture(scope="module")
def cloudwatch(aws: Server) -> Any:
    return aws.client("cloudwatch")


@pytest.fixture
def name() -> str:
    return f"alarm-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(aws: Server, sqs: Any, name: str) -> tuple[str, str]:
    """A topic, and the URL of a queue that has its messages."""
    url, queue = make_queue(sqs)
    arn = aws.client("sns").create_topic(Name=name)["TopicArn"]
    aws.client("sns").subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue)
    return arn, url


@pytest.fixture
def rule(events: Any, sqs: Any, name: str) -> Iterator[str]:
    """The URL of a queue that has the events of alarms."""
    url, queue = make_queue(sqs)
    pattern = {"source": ["aws.cloudwatch"], "detail": {"alarmName": [{"prefix": name}]}}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue}])
    yield url
    remove(events, name)


def put_value(cloudwatch: Any, name: str, value: float) -> None:
    """Into the minute that ended last."""
    at = datetime.now(UTC) - timedelta(minutes=1, seconds=7)
    datum = {"MetricName": name, "Value": value, "Timestamp": at}
    cloudwatch.put_metric_data(Namespace="Mine", MetricData=[datum])


def put_alarm(cloudwatch: Any, name: str, **changes: Any) -> None:
    definition = {
        "MetricName": name,
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 5,
        "ComparisonOperator": "GreaterThanThreshold",
    }
    cloudwatch.put_metric_alarm(AlarmName=name, Namespace="Mine", **{**definition, **changes})


def alarm_of(cloudwatch: Any, name: str) -> dict[str, Any]:
    types = ["MetricAlarm", "CompositeAlarm"]
    found = cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=types)
    (alarm,) = found["MetricAlarms"] + found["CompositeAlarms"]
    return dict(alarm)


def test_from_a_value_to_a_message_and_events(
    cloudwatch: Any, sqs: Any, name: str, topic: tuple[str, str], rule: str
) -> None:
    arn, url = topic
    put_value(cloudwatch, name, 9)
    # Five minutes: the value counts whichever minute ends during the test.
    put_alarm(cloudwatch, name, Period=300, DatapointsToAlarm=1, AlarmActions=[arn])
    cloudwatch.get_waiter("alarm_exists").wait(AlarmNames=[name])
    envelope = json.loads(receive(sqs, url)["Body"])
    assert (envelope["TopicArn"], envelope["Subject"]) == (
        arn,
        f'ALARM: "{name}" in US East (N. Virginia)',
    )
    message = json.loads(envelope["Message"])
    assert (message["NewStateValue"], message["OldStateValue"]) == ("ALARM", "INSUFFICIENT_DATA")
    alarm = alarm_of(cloudwatch, name)
    assert alarm["StateValue"] == "ALARM"
    assert alarm["StateReason"] == message["NewStateReason"]
    assert alarm["StateReason"].startswith(
        "Threshold Crossed: 1 out of the last 1 datapoints [9.0 ("
    )
    types = [json.loads(receive(sqs, rule)["Body"])["detail-type"] for _ in range(2)]
    assert sorted(types) == [
        "CloudWatch Alarm Configuration Change",
        "CloudWatch Alarm State Change",
    ]
    pages = cloudwatch.get_paginator("describe_alarm_history").paginate(
        AlarmName=name, PaginationConfig={"PageSize": 1}
    )
    summaries = [item["HistorySummary"] for page in pages for item in page["AlarmHistoryItems"]]
    assert summaries == [
        f"Successfully executed action {arn}",
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
        f'Alarm "{name}" created',
    ]


def test_composite_alarms(cloudwatch: Any, sqs: Any, name: str, topic: tuple[str, str]) -> None:
    arn, url = topic
    children = [f"{name}-1", f"{name}-2"]
    for child in children:
        put_alarm(cloudwatch, child, TreatMissingData="ignore")
    rule = " AND ".join(f'ALARM("{child}")' for child in children)
    cloudwatch.put_composite_alarm(AlarmName=name, AlarmRule=rule, AlarmActions=[arn])
    cloudwatch.get_waiter("composite_alarm_exists").wait(
        AlarmNames=[name], AlarmTypes=["CompositeAlarm"]
    )
    for child in children:
        cloudwatch.set_alarm_state(AlarmName=child, StateValue="ALARM", StateReason="test")
    message = json.loads(json.loads(receive(sqs, url)["Body"])["Message"])
    assert (message["AlarmName"], message["NewStateValue"]) == (name, "ALARM")
    (trigger,) = message["TriggeringChildren"]
    assert trigger["Arn"].endswith(f":alarm:{children[1]}")
    with pytest.raises(cloudwatch.exceptions.ResourceConflict):
        cloudwatch.delete_alarms(AlarmNames=children[:1])
    cloudwatch.delete_alarms(AlarmNames=[name])
    cloudwatch.delete_alarms(AlarmNames=children)
    with pytest.raises(cloudwatch.exceptions.ResourceNotFound):
        cloudwatch.set_alarm_state(AlarmName=name, StateValue="OK", StateReason="test")


def test_lists_tags_and_refusals(cloudwatch: Any, name: str) -> None:
    names = [f"{name}-{number}" for number in range(5)]
    for one in names:
        put_alarm(cloudwatch, one, MetricName="m", Tags=[{"Key": "of", "Value": name}])
    pages = cloudwatch.get_paginator("describe_alarms").paginate(
        AlarmNamePrefix=name, PaginationConfig={"PageSize": 2}
    )
    assert [alarm["AlarmName"] for page in pages for alarm in page["MetricAlarms"]] == names
    arn = alarm_of(cloudwatch, names[0])["AlarmArn"]
    cloudwatch.tag_resource(ResourceARN=arn, Tags=[{"Key": "more", "Value": "1"}])
    cloudwatch.untag_resource(ResourceARN=arn, TagKeys=["of"])
    assert cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"] == [
        {"Key": "more", "Value": "1"}
    ]
    cloudwatch.disable_alarm_actions(AlarmNames=names[:2])
    assert not alarm_of(cloudwatch, names[1])["ActionsEnabled"]
    with pytest.raises(ClientError, match=r"ValidationError.*multiple of 60"):
        put_alarm(cloudwatch, name, Period=7)
    with pytest.raises(cloudwatch.exceptions.InvalidFormatFault):
        cloudwatch.set_alarm_state(
            AlarmName=names[0], StateValue="OK", StateReason="r", StateReasonData="no JSON"
        )
    cloudwatch.delete_alarms(AlarmNames=names)
    assert not cloudwatch.describe_alarms(AlarmNamePrefix=name)["MetricAlarms"]


def test_metrics_of_ten_seconds(cloudwatch: Any, name: str) -> None:
    now = datetime.now(UTC)
    data = [
        {"MetricName": name, "Value": float(age), "StorageResolution": 1,
         "Timestamp": now - timedelta(seconds=10 * age)}
        for age in range(1, 4)
    ]  # fmt: skip
    cloudwatch.put_metric_data(Namespace="Mine", MetricData=data)
    found = cloudwatch.get_metric_statistics(
        Namespace="Mine",
        MetricName=name,
        StartTime=now - timedelta(minutes=2),
        EndTime=now + timedelta(minutes=1),
        Period=10,
        Statistics=["Sum"],
    )
    assert [point["Sum"] for point in found["Datapoints"]] == [3, 2, 1]
    many = {"Period": 10, "EvaluationPeriods": 30, "DatapointsToAlarm": 1, "Threshold": 2.5}
    put_alarm(cloudwatch, name, TreatMissingData="notBreaching", **many)
    eventually(lambda: alarm_of(cloudwatch, name)["StateValue"] == "ALARM")
    cloudwatch.delete_alarms(AlarmNames=[name])


MUTE = {"Schedule": {"Expression": "cron(0 2 * * *)", "Duration": "PT4H"}}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("put_alarm_mute_rule", {"Name": "m", "Rule": MUTE}),
        ("get_alarm_mute_rule", {"AlarmMuteRuleName": "m"}),
        ("list_alarm_mute_rules", {}),
        ("delete_alarm_mute_rule", {"AlarmMuteRuleName": "m"}),
        ("describe_alarm_contributors", {"AlarmName": "a"}),
        ("put_anomaly_detector", {"Namespace": "n", "MetricName": "m", "Stat": "Sum"}),
        ("describe_anomaly_detectors", {}),
    ],
)
def test_what_goes_with_alarms_that_are_not_built_is_refused_by_name(
    cloudwatch: Any, operation: str, params: dict[str, Any]
) -> None:
    name = cloudwatch.meta.method_to_api_mapping[operation]
    with pytest.raises(ClientError, match=f"cloudwatch:{name} is not implemented") as caught:
        getattr(cloudwatch, operation)(**params)
    assert caught.value.response["Error"]["Code"] == "UnsupportedOperation"


def test_log_alarms_are_refused_by_name(cloudwatch: Any) -> None:
    schedule = {"ScheduleExpression": "rate(5 minutes)", "StartTimeOffset": 300}
    query = {
        "QueryString": "stats count(*)",
        "ScheduledQueryRoleARN": "arn:aws:iam::000000000000:role/any",
        "ScheduleConfiguration": schedule,
        "AggregationExpression": "count(*)",
    }
    with pytest.raises(ClientError, match="cloudwatch:PutLogAlarm is not implemented"):
        cloudwatch.put_log_alarm(
            AlarmName="a",
            ScheduledQueryConfiguration=query,
            QueryResultsToEvaluate=1,
            QueryResultsToAlarm=1,
            Threshold=1,
            ComparisonOperator="GreaterThanThreshold",
        )
