"""Alarms that another service keeps in its own transactions."""

import pytest

from sagehen.services.monitoring.alarms.managed import ManagedAlarms
from sagehen.wire.errors import AwsError
from support.fixtures.api_alarms import POLICY

DEFINITION = {
    "AlarmName": "TargetTracking-endpoint/e/variant/v-AlarmHigh-0",
    "Namespace": "AWS/SageMaker",
    "MetricName": "InvocationsPerInstance",
    "Dimensions": [{"Name": "EndpointName", "Value": "e"}],
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 3,
    "Threshold": 70.0,
    "ComparisonOperator": "GreaterThanThreshold",
    "AlarmActions": [f"{POLICY}:createdBy/0"],
    "AlarmDescription": "DO NOT EDIT OR DELETE.",
}
NAME = DEFINITION["AlarmName"]


@pytest.fixture
def managed(alarms):
    return ManagedAlarms(alarms.changes)


def test_they_are_alarms_like_others(alarms, managed):
    with alarms.database.write() as connection:
        arn = managed.put(connection, DEFINITION, 5.0)
    assert alarms.alarm(NAME)["AlarmArn"] == arn == alarms.arns.alarm(NAME)
    with alarms.database.write() as connection:
        managed.put(connection, {**DEFINITION, "Threshold": 9.0}, 6.0)
    assert alarms.alarm(NAME)["Threshold"] == 9.0


def test_they_are_undone_with_the_transaction(alarms, managed):
    def fail():
        with alarms.database.write() as connection:
            managed.put(connection, DEFINITION, 5.0)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert alarms.DescribeAlarms()["MetricAlarms"] == []


def test_they_go_even_if_a_composite_alarm_names_them(alarms, managed):
    alarms.put("other")
    with alarms.database.write() as connection:
        managed.put(connection, DEFINITION, 5.0)
    alarms.put_composite("c", f'NOT ALARM("{NAME}")')
    with alarms.database.write() as connection:
        managed.delete(connection, [NAME, "gone"], 6.0)
    assert [one["AlarmName"] for one in alarms.DescribeAlarms()["MetricAlarms"]] == ["other"]
    assert alarms.history(NAME)[-1] == f'Alarm "{NAME}" deleted'


def test_definitions_are_checked(alarms, managed):
    with alarms.database.write() as connection, pytest.raises(AwsError):
        managed.put(connection, {**DEFINITION, "Period": 7}, 5.0)
