"""Composite alarms follow their children; cycles, deletion and suppression."""

import json
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from sagehen.services.monitoring.alarms import store
from sagehen.services.monitoring.alarms.composite.cascade import end_suppression_periods
from support.fixtures.api_alarms import POLICY, TOPIC, Alarms

ARN = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"
WAITS = {
    "ActionsSuppressor": "s",
    "ActionsSuppressorWaitPeriod": 60,
    "ActionsSuppressorExtensionPeriod": 30,
    "OKActions": [TOPIC],
}


@pytest.fixture
def alarms(database, tmp_path):
    alarms = Alarms(database, tmp_path)
    for name in ("a", "b", "s"):
        alarms.put(name, AlarmActions=[])
    return alarms


def after(alarms, seconds):
    alarms.clock.seconds += seconds
    with alarms.database.write() as connection:
        end_suppression_periods(connection, alarms.actions, alarms.clock.now())


def told(alarms):
    """States of the messages since the last time."""
    states = [json.loads(one.message)["NewStateValue"] for one in alarms.sent]
    del alarms.sent[:]
    return states


def test_a_composite_alarm_follows_its_children(alarms):
    alarms.put_composite("c", "ALARM(a) AND NOT ALARM(b)", AlarmDescription="both")
    alarm = alarms.alarm("c")
    assert (alarm["StateValue"], alarm["AlarmRule"]) == ("OK", "ALARM(a) AND NOT ALARM(b)")
    assert alarm["StateReason"] == f"{ARN}c was created and its alarm rule evaluates to OK"
    alarms.set_state("a", "ALARM")
    alarm = alarms.alarm("c")
    assert alarm["StateValue"] == "ALARM"
    assert alarm["StateReason"] == (
        f"{ARN}a transitioned to ALARM at Sunday 01 November, 2026 12:00:10 UTC"
    )
    trigger = {"arn": f"{ARN}a"}
    trigger["state"] = {"value": "ALARM", "timestamp": "2026-11-01T12:00:10.000+0000"}
    assert json.loads(alarm["StateReasonData"]) == {"triggeringAlarms": [trigger]}
    body = json.loads(alarms.sent[0].message)
    assert body["TriggeringChildren"] == [
        {
            "Arn": f"{ARN}a",
            "State": {"Value": "ALARM", "Timestamp": "2026-11-01T12:00:10.000+0000"},
        }
    ]
    assert "Trigger" not in body
    alarms.set_state("b", "ALARM")
    assert alarms.state("c") == "OK"
    assert alarms.history("c") == [
        'Alarm "c" created',
        "Alarm updated from INSUFFICIENT_DATA to OK",
        "Alarm updated from OK to ALARM",
        f"Successfully executed action {TOPIC}",
        "Alarm updated from ALARM to OK",
    ]
    assert alarms.events[-1].detail["configuration"] == {
        "alarmRule": "ALARM(a) AND NOT ALARM(b)",
        "description": "both",
    }


def test_composites_of_composites(alarms):
    alarms.put_composite("c", "ALARM(a)")
    alarms.put_composite("d", f"ALARM({ARN}c) OR ALARM(b)")
    alarms.put_composite("e", "NOT ALARM(d)")
    assert [alarms.state(name) for name in "cde"] == ["OK", "OK", "ALARM"]
    alarms.set_state("a", "ALARM")
    assert [alarms.state(name) for name in "cde"] == ["ALARM", "ALARM", "OK"]


def test_a_changed_rule_is_evaluated(alarms):
    alarms.put_composite("c", "TRUE")
    assert alarms.state("c") == "ALARM"
    alarms.put_composite("c", "FALSE")
    assert alarms.state("c") == "OK"
    assert alarms.alarm("c")["StateReason"] == (
        f"{ARN}c was updated and its alarm rule evaluates to OK"
    )


def test_a_set_state_lasts_until_a_child_changes(alarms):
    alarms.put_composite("c", "ALARM(a)")
    alarms.set_state("c", "ALARM")
    alarms.evaluate()
    assert alarms.state("c") == "ALARM"
    alarms.set_state("a", "OK")
    assert alarms.state("c") == "OK"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"rule": "ALARM(x) OR ALARM(a) OR OK(y)"}, "alarms [x, y] in the alarm rule do not exist"),
        ({"rule": "ALARM"}, "Error in AlarmRule"),
        ({"AlarmActions": [POLICY]}, "scaling policy"),
        ({"ActionsSuppressor": "s"}, "ActionsSuppressorWaitPeriod must be specified"),
        ({"ActionsSuppressorWaitPeriod": 5}, "with ActionsSuppressor only"),
        ({**WAITS, "ActionsSuppressor": "x"}, "alarms [x]"),
        ({**WAITS, "ActionsSuppressorWaitPeriod": -1}, "negative"),
    ],
)
def test_what_is_refused(alarms, params, words):
    told = alarms.refuses("put_composite", **params)
    assert told[0] == "ValidationError"
    assert words in told[1]


def test_a_name_has_one_kind_of_alarm(alarms):
    alarms.put_composite("c", "ALARM(a)")
    assert "is a CompositeAlarm" in alarms.refuses("put", name="c")[1]
    assert "is a MetricAlarm" in alarms.refuses("put_composite", name="a", rule="ALARM(b)")[1]


def test_a_cycle_is_not_evaluated_until_it_is_broken(alarms):
    alarms.put_composite("c", "ALARM(a)")
    alarms.put_composite("d", "ALARM(c)")
    alarms.put_composite("c", "ALARM(d) OR ALARM(a)")
    alarms.set_state("a", "ALARM")
    assert [alarms.state(name) for name in "cd"] == ["OK", "OK"]
    assert alarms.refuses("DeleteAlarms", AlarmNames=["c"])[0] == "ResourceConflict"
    alarms.put_composite("c", "FALSE")
    alarms.DeleteAlarms(AlarmNames=["d"])
    alarms.DeleteAlarms(AlarmNames=["c"])


def test_what_is_above_a_cycle_is_evaluated(alarms):
    alarms.put_composite("c", "ALARM(a)")
    alarms.put_composite("d", "ALARM(c)")
    alarms.put_composite("c", "ALARM(d) OR ALARM(a)")
    alarms.put_composite("e", "ALARM(d) OR ALARM(a)")
    alarms.set_state("a", "ALARM")
    assert [alarms.state(name) for name in "cde"] == ["OK", "OK", "ALARM"]


def test_an_alarm_is_evaluated_after_all_its_children(alarms):
    """In between, `c` would have been in ALARM."""
    alarms.put_composite("d", "ALARM(a)")
    alarms.put_composite("c", "ALARM(a) AND NOT ALARM(d)")
    alarms.set_state("a", "ALARM")
    assert [alarms.state(name) for name in "cd"] == ["OK", "ALARM"]
    assert alarms.history("c")[-1] == "Alarm updated from INSUFFICIENT_DATA to OK"


@contextmanager
def counted_statements(alarms):
    statements = []

    def count(*args):
        statements.append(args[2])

    event.listen(alarms.database.engine, "before_cursor_execute", count)
    yield statements
    event.remove(alarms.database.engine, "before_cursor_execute", count)


def statements_of_levels(alarms, letter, depth):
    """Of making alarms that name each other, two on each level, and of a change at the bottom."""
    x, y = f"x{letter}", f"y{letter}"
    with counted_statements(alarms) as making:
        for level in range(depth):
            rule = f"ALARM({x}{level - 1}) OR ALARM({y}{level - 1})" if level else "ALARM(a)"
            for name in (x, y):
                alarms.put_composite(f"{name}{level}", rule, AlarmActions=[])
    with counted_statements(alarms) as changing:
        alarms.set_state("a", "ALARM")
    assert alarms.state(f"{x}{depth - 1}") == "ALARM"
    for level in reversed(range(depth)):
        for name in (x, y):
            alarms.DeleteAlarms(AlarmNames=[f"{name}{level}"])
    alarms.set_state("a", "OK")
    return len(making), len(changing)


def test_the_work_is_in_proportion_to_the_alarms(alarms):
    few = statements_of_levels(alarms, "s", 5)
    many = statements_of_levels(alarms, "l", 20)
    assert many[0] < 5 * few[0]
    assert many[1] < 5 * few[1]


def test_any_reason_data_of_a_composite_alarm(alarms):
    alarms.put_composite("c", "ALARM(a)")
    for number, data in enumerate(
        ['{"triggeringAlarms": 5}', '{"triggeringAlarms": [{"arn": "x", "state": "ALARM"}]}']
    ):
        alarms.set_state("c", ("ALARM", "OK")[number], StateReasonData=data)
    assert json.loads(alarms.sent[0].message)["TriggeringChildren"] == []


def test_an_alarm_that_names_itself(alarms):
    alarms.put_composite("c", "NOT ALARM(c)")
    assert alarms.state("c") == "INSUFFICIENT_DATA"


def test_a_child_is_deleted_after_its_parent(alarms):
    alarms.put_composite("c", "ALARM(a)", **WAITS)
    for child in ("a", "s"):
        code, message = alarms.refuses("DeleteAlarms", AlarmNames=["b", child])
        assert (code, f"The alarm {child} " in message) == ("ResourceConflict", True)
    assert alarms.state("b")
    alarms.put_composite("d", "ALARM(a)")
    assert "one composite" in alarms.refuses("DeleteAlarms", AlarmNames=["c", "d"])[1]
    alarms.DeleteAlarms(AlarmNames=["d"])
    alarms.DeleteAlarms(AlarmNames=["a", "c"])
    alarms.DeleteAlarms(AlarmNames=["s"])


def test_as_many_parents_as_an_alarm_may_have(alarms, monkeypatch):
    from sagehen.services.monitoring.alarms import configuration

    monkeypatch.setattr(configuration, "MAX_PARENTS", 2)
    for name in ("c", "d", "d"):
        alarms.put_composite(name, "ALARM(a)")
    assert alarms.refuses("put_composite", name="e", rule="ALARM(a)")[0] == "LimitExceeded"


class TestSuppression:
    """`c` is in ALARM while `a` is; `s` suppresses its actions."""

    @pytest.fixture(autouse=True)
    def composite(self, alarms):
        alarms.put_composite("c", "ALARM(a)", **WAITS)
        after(alarms, 60)
        assert told(alarms) == ["OK"]

    def by(self, alarms):
        alarm = alarms.alarm("c")
        reason = alarm.get("ActionsSuppressedReason")
        by = alarm.get("ActionsSuppressedBy")
        assert reason == (by and f"Actions suppressed by {by}")
        return by

    def test_actions_run_after_the_wait_period(self, alarms):
        alarms.set_state("a", "ALARM")
        assert (alarms.state("c"), self.by(alarms), told(alarms)) == ("ALARM", "WaitPeriod", [])
        after(alarms, 59)
        assert (self.by(alarms), told(alarms)) == ("WaitPeriod", [])
        after(alarms, 1)
        assert (self.by(alarms), told(alarms)) == (None, ["ALARM"])
        alarms.set_state("s", "ALARM")
        alarms.set_state("s", "OK")
        after(alarms, 600)
        assert (self.by(alarms), told(alarms)) == (None, [])

    def test_a_suppressor_within_the_wait_period(self, alarms):
        alarms.set_state("a", "ALARM")
        after(alarms, 30)
        alarms.set_state("s", "ALARM")
        after(alarms, 600)
        assert (self.by(alarms), told(alarms)) == ("Alarm", [])
        alarms.set_state("s", "OK")
        assert (self.by(alarms), told(alarms)) == ("ExtensionPeriod", [])
        after(alarms, 29)
        assert told(alarms) == []
        after(alarms, 1)
        assert (self.by(alarms), told(alarms)) == (None, ["ALARM"])

    def test_a_suppressor_that_comes_back_within_the_extension(self, alarms):
        alarms.set_state("s", "ALARM")
        alarms.set_state("a", "ALARM")
        assert self.by(alarms) == "Alarm"
        alarms.set_state("s", "OK")
        alarms.set_state("s", "ALARM")
        after(alarms, 600)
        assert (self.by(alarms), told(alarms)) == ("Alarm", [])

    def test_another_change_begins_another_wait_period(self, alarms):
        alarms.set_state("a", "ALARM")
        after(alarms, 50)
        alarms.set_state("a", "OK")
        after(alarms, 50)
        assert (self.by(alarms), told(alarms)) == ("WaitPeriod", [])
        after(alarms, 10)
        assert (self.by(alarms), told(alarms)) == (None, ["OK"])

    def test_a_period_ends_once(self, alarms):
        alarms.set_state("a", "ALARM")
        after(alarms, 60)
        after(alarms, 60)
        assert told(alarms) == ["ALARM"]
        with alarms.database.read() as connection:
            assert store.suppressed_by_period(connection) == []

    def test_disabled_actions_do_not_wait(self, alarms):
        alarms.DisableAlarmActions(AlarmNames=["c"])
        alarms.set_state("a", "ALARM")
        assert (alarms.state("c"), self.by(alarms), told(alarms)) == ("ALARM", None, [])

    def test_the_event_says_why(self, alarms):
        alarms.set_state("a", "ALARM")
        assert alarms.events[-1].detail["state"]["actionsSuppressedBy"] == "WaitPeriod"
