"""Messages to topics and events, as CloudWatch writes them."""

import json

from support.fixtures.api_alarms import TOPIC

ARN = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:a"
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]


def test_the_message_of_an_alarm(alarms):
    alarms.put(Dimensions=DIMENSIONS, OKActions=[], TreatMissingData="missing")
    alarms.set_state("a", "ALARM")
    (sent,) = alarms.sent
    assert (sent.topic_arn, sent.subject) == (TOPIC, 'ALARM: "a" in US East (N. Virginia)')
    assert json.loads(sent.message) == {
        "AlarmName": "a",
        "AlarmDescription": None,
        "AWSAccountId": "000000000000",
        "AlarmConfigurationUpdatedTimestamp": "2026-11-01T12:00:10.000+0000",
        "NewStateValue": "ALARM",
        "NewStateReason": "set",
        "StateChangeTime": "2026-11-01T12:00:10.000+0000",
        "Region": "US East (N. Virginia)",
        "AlarmArn": ARN,
        "OldStateValue": "INSUFFICIENT_DATA",
        "ActionExecutedAfterMuteWindow": False,
        "OKActions": [],
        "AlarmActions": [TOPIC],
        "InsufficientDataActions": [],
        "Trigger": {
            "MetricName": "m",
            "Namespace": "Mine",
            "StatisticType": "Statistic",
            "Statistic": "SUM",
            "Unit": None,
            "Dimensions": [
                {"value": "e", "name": "EndpointName"},
                {"value": "v", "name": "VariantName"},
            ],
            "Period": 60,
            "EvaluationPeriods": 1,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 5.0,
            "TreatMissingData": "missing",
            "EvaluateLowSampleCountPercentile": "",
        },
    }


def test_members_that_only_some_alarms_have(alarms):
    alarms.put(Statistic=None, ExtendedStatistic="p99", Unit="Seconds", DatapointsToAlarm=1)
    alarms.set_state("a", "ALARM")
    trigger = json.loads(alarms.sent[0].message)["Trigger"]
    assert (trigger["StatisticType"], trigger["ExtendedStatistic"]) == ("ExtendedStatistic", "p99")
    assert (trigger["Unit"], trigger["DatapointsToAlarm"]) == ("Seconds", 1)
    assert "Statistic" not in trigger
    assert trigger["TreatMissingData"] == ""


def test_a_subject_has_a_bound_and_is_ascii(alarms):
    alarms.put("é" * 200)
    alarms.set_state("é" * 200, "ALARM")
    subject = alarms.sent[0].subject
    assert len(subject) == 100
    assert subject.startswith('ALARM: "????')


def test_the_event_of_a_state(alarms):
    alarms.put(Dimensions=DIMENSIONS, AlarmDescription="why", Unit="Count")
    del alarms.events[:]
    alarms.set_state("a", "OK", StateReasonData="{}")
    (event,) = alarms.events
    assert (event.detail_type, event.alarm_arn) == ("CloudWatch Alarm State Change", ARN)
    (metric,) = event.detail["configuration"].pop("metrics")
    assert metric.pop("id")
    assert metric == {
        "metricStat": {
            "metric": {
                "namespace": "Mine",
                "name": "m",
                "dimensions": {"EndpointName": "e", "VariantName": "v"},
            },
            "period": 60,
            "stat": "Sum",
            "unit": "Count",
        },
        "returnData": True,
    }
    assert event.detail == {
        "alarmName": "a",
        "configuration": {"description": "why"},
        "previousState": {
            "value": "INSUFFICIENT_DATA",
            "reason": "Unchecked: Initial alarm creation",
            "timestamp": "2026-11-01T12:00:10.000+0000",
        },
        "state": {
            "value": "OK",
            "reason": "set",
            "reasonData": "{}",
            "timestamp": "2026-11-01T12:00:10.000+0000",
        },
    }


def test_the_event_of_a_configuration(alarms):
    alarms.put(AlarmDescription="why", DatapointsToAlarm=1)
    (event,) = alarms.events
    assert event.detail_type == "CloudWatch Alarm Configuration Change"
    configuration = event.detail["configuration"]
    assert len(configuration.pop("metrics")) == 1
    assert configuration == {
        "alarmName": "a",
        "description": "why",
        "actionsEnabled": True,
        "timestamp": "2026-11-01T12:00:10.000+0000",
        "okActions": [],
        "alarmActions": [TOPIC],
        "insufficientDataActions": [],
        "comparisonOperator": "GreaterThanThreshold",
        "datapointsToAlarm": 1,
        "evaluationPeriods": 1,
        "threshold": 5.0,
    }
    assert event.detail["operation"] == "create"
