"""Passes over alarms: states, their actions, and what a kill leaves."""

import json
from datetime import UTC, datetime

import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError

from sagehen.services.monitoring.alarms import (
    datapoints,
    evaluation_pass,
    history,
    store,
    transitions,
)
from sagehen.services.monitoring.alarms.composite import cascade
from sagehen.services.monitoring.alarms.evaluation.evaluate import evaluate
from sagehen.services.monitoring.alarms.transitions import NO_DATAPOINTS
from sagehen.services.monitoring.cloudwatch import sample_reads
from sagehen.state.leases import LeaseLost, acquire
from support.fixtures.api_alarms import NOON, POLICY, TOPIC


def test_an_alarm_follows_its_metric(alarms):
    alarms.put_value(7)
    alarms.put(OKActions=[TOPIC])
    alarms.evaluate()
    alarm = alarms.alarm()
    assert alarm["StateValue"] == "ALARM"
    assert alarm["StateReason"] == (
        "Threshold Crossed: 1 datapoint [7.0 (01/11/26 11:59:00)] was greater than the threshold "
        "(5.0)."
    )
    assert alarm["StateTransitionedTimestamp"] == datetime.fromtimestamp(alarms.clock.now(), UTC)
    assert json.loads(alarm["StateReasonData"]) == {
        "version": "1.0",
        "queryDate": "2026-11-01T12:00:10.000+0000",
        "startDate": "2026-11-01T11:59:00.000+0000",
        "statistic": "Sum",
        "period": 60,
        "recentDatapoints": [7.0],
        "threshold": 5.0,
        "evaluatedDatapoints": [
            {"timestamp": "2026-11-01T11:59:00.000+0000", "sampleCount": 1.0, "value": 7.0}
        ],
    }
    alarms.after_a_minute(3)
    assert alarms.state() == "OK"
    alarms.clock.seconds += 600
    alarms.evaluate()
    assert alarms.alarm()["StateReason"] == "Insufficient Data: 1 datapoint was unknown."
    assert [one.subject for one in alarms.sent] == [
        'ALARM: "a" in US East (N. Virginia)',
        'OK: "a" in US East (N. Virginia)',
    ]
    assert alarms.history() == [
        'Alarm "a" created',
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
        f"Successfully executed action {TOPIC}",
        "Alarm updated from ALARM to OK",
        f"Successfully executed action {TOPIC}",
        "Alarm updated from OK to INSUFFICIENT_DATA",
    ]


def test_a_state_that_stays_writes_nothing(alarms):
    alarms.put_value(7)
    alarms.put()
    alarms.evaluate()
    before = alarms.alarm()
    for _ in range(3):
        alarms.after_a_minute(8)
    assert alarms.alarm() == before
    assert len(alarms.sent) == 1


def test_the_period_that_has_not_ended_does_not_count(alarms):
    alarms.put()
    alarms.put_value(3)
    alarms.put_value(7, minutes_ago=0)
    alarms.evaluate()
    assert alarms.state() == "OK"
    alarms.clock.seconds += 60
    alarms.evaluate()
    assert alarms.state() == "ALARM"


def test_a_period_of_minutes_slides_by_the_minute(alarms):
    alarms.put(Period=180, Threshold=8.5)
    for minutes_ago in (1, 2, 3):
        alarms.put_value(3, minutes_ago)
    alarms.evaluate()
    assert alarms.state() == "ALARM"
    alarms.after_a_minute(2)
    assert alarms.state() == "OK"


@pytest.mark.parametrize("period", [10, 20, 30])
def test_short_periods(alarms, period):
    alarms.put(Period=period, Statistic="Maximum")
    at = datetime.fromtimestamp(NOON.timestamp() - period, UTC)
    alarms.put_value(7, StorageResolution=1, Timestamp=at)
    alarms.evaluate()
    assert alarms.state() == "ALARM"
    alarms.clock.seconds += 2 * period + 40
    at = datetime.fromtimestamp(alarms.clock.now() // 10 * 10 - period - 10, UTC)
    alarms.put_value(1, StorageResolution=1, Timestamp=at)
    alarms.evaluate()
    assert alarms.state() == "OK"


def test_percentiles_and_units(alarms):
    alarms.put("p", Statistic=None, ExtendedStatistic="p80", Unit="Seconds")
    values = {"Values": [1.0, 2.0, 9.0], "Counts": [5.0, 3.0, 2.0]}
    alarms.put_value(0, Unit="Count")
    second = datetime.fromtimestamp(alarms.clock.now() // 60 * 60 - 60, UTC)
    datum = {"MetricName": "m", "Timestamp": second, "Unit": "Seconds", **values}
    alarms.PutMetricData(Namespace="Mine", MetricData=[datum])
    alarms.evaluate()
    assert alarms.state("p") == "OK"
    alarms.put("p", Statistic=None, ExtendedStatistic="p90", Unit="Seconds")
    alarms.evaluate()
    assert alarms.state("p") == "ALARM"
    assert json.loads(alarms.alarm("p")["StateReasonData"])["unit"] == "Seconds"


def test_few_samples_of_a_percentile_change_nothing_if_asked(alarms):
    alarms.put_value(7)
    few = {"Statistic": None, "ExtendedStatistic": "p50"}
    alarms.put("a", **few, EvaluateLowSampleCountPercentile="ignore")
    alarms.put("b", **few, EvaluateLowSampleCountPercentile="evaluate")
    alarms.evaluate()
    assert [alarms.state(name) for name in "ab"] == ["INSUFFICIENT_DATA", "ALARM"]
    datum = {"MetricName": "m", "Values": [7.0], "Counts": [20.0]}
    alarms.clock.seconds += 60
    second = datetime.fromtimestamp(alarms.clock.now() // 60 * 60 - 60, UTC)
    alarms.PutMetricData(Namespace="Mine", MetricData=[{**datum, "Timestamp": second}])
    alarms.evaluate()
    assert alarms.state("a") == "ALARM"


def metric(name, query_id, **more):
    stat = {"Metric": {"Namespace": "Mine", "MetricName": name}, "Period": 60, "Stat": "Sum"}
    return {"Id": query_id, "MetricStat": stat, "ReturnData": False, **more}


MATH = dict.fromkeys(("Namespace", "MetricName", "Statistic", "Period"))


def test_metric_math(alarms):
    rate = {"Id": "rate", "Expression": "100 * errors / calls", "Label": "Error rate"}
    queries = [metric("errors", "errors"), metric("calls", "calls"), rate]
    alarms.put(**MATH, Metrics=queries)
    alarms.put_value(2, name="errors")
    alarms.put_value(20, name="calls")
    alarms.evaluate()
    alarm = alarms.alarm()
    assert alarm["StateValue"] == "ALARM"
    data = json.loads(alarm["StateReasonData"])
    assert (data["period"], data["recentDatapoints"]) == (60, [10.0])
    assert "statistic" not in data
    assert alarm["Metrics"][2]["Label"] == "Error rate"
    trigger = json.loads(alarms.sent[0].message)["Trigger"]
    assert [query["Id"] for query in trigger["Metrics"]] == ["errors", "calls", "rate"]
    assert "MetricName" not in trigger


def test_an_alarm_whose_topic_is_gone_still_changes(alarms):
    alarms.lost_topics.add(TOPIC)
    alarms.put_value(7)
    alarms.put()
    alarms.evaluate()
    assert alarms.state() == "ALARM"
    assert alarms.history()[-1] == f"Failed to execute action {TOPIC}"


def test_disabled_actions_do_not_run_but_the_event_is_sent(alarms):
    alarms.put_value(7)
    alarms.put(ActionsEnabled=False, AlarmActions=[TOPIC, POLICY])
    alarms.evaluate()
    alarms.after_a_minute(7)
    assert (alarms.state(), alarms.sent, alarms.invoked) == ("ALARM", [], [])
    types = [event.detail_type for event in alarms.events]
    assert types == ["CloudWatch Alarm Configuration Change", "CloudWatch Alarm State Change"]
    alarms.EnableAlarmActions(AlarmNames=["a", "unknown"])
    alarms.after_a_minute(7)
    assert (alarms.sent, len(alarms.invoked)) == ([], 1)


def test_a_scaling_policy_is_invoked_each_minute_while_the_state_lasts(alarms):
    alarms.put_value(6, minutes_ago=2)
    alarms.put_value(7)
    alarms.put(AlarmActions=[POLICY], EvaluationPeriods=2)
    alarms.evaluate()
    ((trigger, now),) = alarms.invoked
    assert trigger == (POLICY, "a", 5.0, "GreaterThanThreshold", (7.0, 6.0))
    assert now == datetime.fromtimestamp(alarms.clock.now(), UTC)
    alarms.clock.seconds += 20
    alarms.evaluate()
    assert len(alarms.invoked) == 1
    alarms.clock.seconds -= 20
    for minute in range(1, 4):
        alarms.after_a_minute(10 * minute)
        assert len(alarms.invoked) == 1 + minute
        assert alarms.invoked[-1][0].values[0] == 10 * minute
    alarms.after_a_minute(1)
    alarms.after_a_minute(1)
    assert alarms.state() == "OK"
    assert len(alarms.invoked) == 4
    assert alarms.history().count(f"Successfully executed action {POLICY}") == 1


def test_a_policy_needs_a_real_datapoint(alarms):
    alarms.put(AlarmActions=[POLICY], TreatMissingData="breaching")
    for _ in range(3):
        alarms.after_a_minute()
    assert (alarms.state(), alarms.invoked) == ("ALARM", [])
    assert alarms.history().count(NO_DATAPOINTS) == 1
    alarms.after_a_minute(9)
    assert len(alarms.invoked) == 1
    assert alarms.history()[-1] == f"Successfully executed action {POLICY}"


def test_a_policy_that_fails_is_tried_again_and_told_once(alarms):
    alarms.policy_failure = "there is none"
    alarms.put(AlarmActions=[POLICY])
    for _ in range(3):
        alarms.after_a_minute(7)
    failed = "Failed to execute AutoScaling action: there is none"
    assert alarms.history().count(failed) == 1
    alarms.policy_failure = None
    alarms.after_a_minute(7)
    assert len(alarms.invoked) == 1


@pytest.mark.parametrize("step", range(1, 8))
def test_what_is_killed_in_between_is_done_once(alarms, step, monkeypatch):
    """A kill undoes the transaction; the next pass does all of it."""
    alarms.put(AlarmActions=[TOPIC, POLICY])
    alarms.put_composite("c", "ALARM(a)")
    alarms.put_value(7)
    del alarms.events[:]
    told = len(alarms.history()), len(alarms.history("c"))

    class Killed(BaseException):
        pass

    done = []

    def count(act):
        def counted(*args, **more):
            done.append(act)
            if len(done) == step:
                raise Killed
            return act(*args, **more)

        return counted

    with monkeypatch.context() as patched:
        patched.setattr(history, "_add", count(history._add))
        patched.setattr(store, "put_state", count(store.put_state))
        patched.setattr(transitions, "invoke_policies", count(transitions.invoke_policies))
        patched.setattr(cascade, "set_composite_state", count(cascade.set_composite_state))
        with pytest.raises(Killed):
            alarms.evaluate()
    assert (alarms.state(), alarms.state("c")) == ("INSUFFICIENT_DATA", "OK")
    assert (len(alarms.history()), len(alarms.history("c"))) == told
    # What was handed in was undone with the transaction.
    del alarms.sent[:], alarms.events[:], alarms.invoked[:]
    alarms.evaluate()
    alarms.evaluate()
    assert (alarms.state(), alarms.state("c")) == ("ALARM", "ALARM")
    assert (len(alarms.sent), len(alarms.events), len(alarms.invoked)) == (2, 2, 1)
    assert (len(alarms.history()), len(alarms.history("c"))) == (told[0] + 3, told[1] + 2)


def test_after_the_commit_nothing_is_done_again(alarms):
    alarms.put(AlarmActions=[TOPIC, POLICY])
    alarms.put_value(7)
    alarms.evaluate()
    restarted = type(alarms.evaluation)(alarms.database, alarms.evaluation._lease, alarms.actions)
    restarted.run(None, alarms.clock.now() + 5)
    assert (len(alarms.sent), len(alarms.invoked)) == (1, 1)


@pytest.mark.parametrize(
    "fault", [ValueError("a mistake"), IntegrityError("a mistake", {}, Exception())]
)
def test_one_bad_action_does_not_keep_the_others_from_changing(alarms, caplog, fault):
    alarms.policy_failure = fault
    alarms.put("bad", AlarmActions=[POLICY])
    alarms.put("good")
    alarms.put_value(7)
    alarms.evaluate()
    assert (alarms.state("bad"), alarms.state("good")) == ("INSUFFICIENT_DATA", "ALARM")
    assert len(alarms.sent) == 1
    assert "a mistake" in caplog.text
    alarms.policy_failure = None
    alarms.evaluate()
    assert (alarms.state("bad"), len(alarms.invoked)) == ("ALARM", 1)


def test_only_the_holder_of_the_lease_writes(alarms):
    alarms.put()
    alarms.put_value(7)
    with alarms.database.write() as connection:
        acquire(connection, "alarms", "another", 2e9, 5)
    with pytest.raises(LeaseLost):
        alarms.evaluate()
    assert (alarms.state(), alarms.sent) == ("INSUFFICIENT_DATA", [])


def test_a_state_that_was_set_meanwhile_is_not_overwritten(alarms, monkeypatch):
    alarms.put()
    alarms.put_value(7)
    write = alarms.evaluation._write

    def set_first(steps, now):
        alarms.set_state("a", "OK")
        write(steps, now)

    monkeypatch.setattr(alarms.evaluation, "_write", set_first)
    alarms.evaluate()
    assert alarms.state() == "OK"


def test_a_set_state_lasts_until_the_next_evaluation(alarms):
    alarms.put_value(1)
    alarms.put()
    alarms.evaluate()
    alarms.set_state("a", "ALARM")
    assert alarms.state() == "ALARM"
    alarms.after_a_minute(1)
    assert alarms.state() == "OK"


def test_an_alarm_whose_evaluation_fails_does_not_stop_the_others(alarms, caplog, monkeypatch):
    def fail(definition, *args):
        if definition["Threshold"] == 1:
            raise ArithmeticError("a mistake")
        return evaluate(definition, *args)

    monkeypatch.setattr(evaluation_pass, "evaluate", fail)
    alarms.put("a", Threshold=1.0)
    alarms.put("b")
    alarms.put_value(7)
    alarms.evaluate()
    assert "a mistake" in caplog.text
    assert alarms.alarm("a")["EvaluationState"] == "EVALUATION_ERROR"
    assert (alarms.state("a"), alarms.state("b")) == ("INSUFFICIENT_DATA", "ALARM")
    monkeypatch.undo()
    alarms.evaluate()
    assert alarms.state("a") == "ALARM"


def test_sums_that_are_too_large_are_no_datapoints(alarms):
    total = {"Id": "total", "Expression": "SUM([m ^ 2.844, m ^ 2.844])"}
    alarms.put("a", **MATH, Metrics=[metric("m", "m"), total])
    alarms.put("b")
    alarms.put_value(2.0**360)
    alarms.evaluate()
    assert (alarms.state("a"), alarms.state("b")) == ("INSUFFICIENT_DATA", "ALARM")


def test_the_work_of_an_alarms_expressions_has_a_bound(alarms, monkeypatch):
    monkeypatch.setattr(datapoints, "MAX_EXPRESSION_POINTS", 1000)
    text = "+".join(["m"] * 400)
    alarms.put("a", **MATH, Metrics=[metric("m", "m"), {"Id": "e", "Expression": text}])
    alarms.put("b")
    alarms.put_value(7)
    alarms.put_value(7, minutes_ago=2)
    alarms.evaluate()
    assert alarms.alarm("a")["EvaluationState"] == "EVALUATION_ERROR"
    assert alarms.state("b") == "ALARM"


def test_an_alarm_that_cannot_be_evaluated_keeps_its_state(alarms, monkeypatch):
    alarms.put(Statistic=None, ExtendedStatistic="p50")
    alarms.put("b")
    alarms.put_value(7)
    monkeypatch.setattr(sample_reads, "MAX_SKETCHES", 0)
    alarms.evaluate()
    assert alarms.alarm()["EvaluationState"] == "EVALUATION_ERROR"
    assert (alarms.state(), alarms.state("b")) == ("INSUFFICIENT_DATA", "ALARM")
    monkeypatch.undo()
    alarms.evaluate()
    assert "EvaluationState" not in alarms.alarm()
    assert alarms.state() == "ALARM"


def test_a_clock_that_was_set_back_stops_nothing(alarms):
    alarms.put(AlarmActions=[POLICY])
    alarms.put_value(7)
    alarms.evaluate()
    alarms.clock.seconds -= 1800
    alarms.put_value(7)
    alarms.evaluate()
    assert len(alarms.invoked) == 2


def test_many_alarms_are_read_with_few_statements(alarms):
    for number in range(60):
        alarms.put(f"a{number}", MetricName=f"m{number}", EvaluationPeriods=1 + number % 3)
        alarms.put_value(number, name=f"m{number}")
    statements = []
    event.listen(
        alarms.database.engine, "before_cursor_execute", lambda *args: statements.append(args[2])
    )
    alarms.evaluation.run(None, alarms.clock.now())
    reads = [
        text for text in statements if text.lstrip().startswith("SELECT") and "samples" in text
    ]
    assert len(reads) == 1
    assert [alarms.state(f"a{number}") for number in (3, 57)] == ["OK", "ALARM"]
