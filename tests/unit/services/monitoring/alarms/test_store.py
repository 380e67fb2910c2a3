"""The rows of alarms, in either database."""

import pytest

from sagehen.services.monitoring.alarms import store
from support.fixtures.api_alarms import POLICY, TOPIC, Alarms


@pytest.fixture
def alarms(any_database, tmp_path):
    return Alarms(any_database, tmp_path)


def test_an_alarm_s_life(alarms):
    long = "n" * 255
    alarms.put(long, AlarmActions=[TOPIC, POLICY], Tags=[{"Key": "k", "Value": "v"}])
    alarms.put_composite("c", f"ALARM({long})")
    alarms.put_value(7)
    alarms.evaluate()
    assert (alarms.state(long), alarms.state("c")) == ("ALARM", "ALARM")
    assert (len(alarms.sent), len(alarms.invoked)) == (2, 1)
    alarms.after_a_minute(8)
    assert len(alarms.invoked) == 2
    alarms.after_a_minute(1)
    assert (alarms.state(long), alarms.state("c")) == ("OK", "OK")
    arn = alarms.arns.alarm(long)
    assert alarms.ListTagsForResource(ResourceARN=arn)["Tags"] == [{"Key": "k", "Value": "v"}]
    alarms.DeleteAlarms(AlarmNames=[long, "c"])
    assert len(alarms.history(long)) == 6


def test_names_in_order_and_by_prefix(alarms):
    names = ["B", "a b", "a%", "a_b", "ab", "b", "é"]
    for name in names:
        alarms.put(name)
    with alarms.database.read() as connection:

        def found(prefix="", after=""):
            return {one.name for one in store.page(connection, after, 100, prefix=prefix)}

        assert found() == set(names)
        assert found("a") == {"a b", "a%", "a_b", "ab"}
        assert found("a_") == {"a_b"}
        assert found("é") == {"é"}
        listed, after = [], ""
        while some := store.page(connection, after, 2):
            listed += [one.name for one in some]
            after = listed[-1]
    assert sorted(listed) == sorted(names)


def test_short_periods_and_suppression(alarms):
    alarms.put("a", Period=10, EvaluationPeriods=3, DatapointsToAlarm=1)
    alarms.put("s", MetricName="other", TreatMissingData="ignore")
    waits = {"ActionsSuppressorWaitPeriod": 20, "ActionsSuppressorExtensionPeriod": 0}
    alarms.put_composite("c", "ALARM(a)", ActionsSuppressor="s", **waits)
    at = alarms.clock.now() // 10 * 10 - 20
    alarms.put_value(7, StorageResolution=1, Timestamp=at)
    alarms.evaluate()
    assert alarms.alarm("c")["ActionsSuppressedBy"] == "WaitPeriod"
    with alarms.database.read() as connection:
        assert [one.name for one in store.suppressed_by_period(connection)] == ["c"]
    alarms.set_state("s", "ALARM")
    assert alarms.alarm("c")["ActionsSuppressedBy"] == "Alarm"


def test_pages_of_history(alarms):
    for number in range(5):
        alarms.put(Threshold=float(number))
    pages = [alarms.DescribeAlarmHistory(MaxRecords=3)]
    pages.append(alarms.DescribeAlarmHistory(MaxRecords=3, NextToken=pages[0]["NextToken"]))
    assert [len(page["AlarmHistoryItems"]) for page in pages] == [3, 2]
