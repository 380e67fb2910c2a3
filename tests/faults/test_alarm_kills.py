"""The evaluation of alarms is killed before each of its statements: whatever was written by then,
each message, event and call of a scaling policy happens once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagehen.frame import tags
from sagehen.frame.statistics import Series, of_values
from sagehen.services.messaging.events import rule_store, target_store
from sagehen.services.messaging.events.records import ENABLED, RuleRecord, TargetRecord
from sagehen.services.messaging.sns import subscription_store, topic_store
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.sqs import message_store, queue_store
from sagehen.services.messaging.sqs.records import QueueRecord
from sagehen.services.monitoring.alarms import history, store
from sagehen.services.monitoring.alarms.records import AlarmKind
from sagehen.services.monitoring.cloudwatch.sample_store import add
from sagehen.state.database import Database
from sagehen.state.migrate import upgrade
from support.alarm_kills import INVOKED, alarms_over, take_pass
from support.state import opened_state

ACCOUNT = "us-east-1:000000000000"
TOPIC = f"arn:aws:sns:{ACCOUNT}:told"
POLICY = f"arn:aws:autoscaling:{ACCOUNT}:scalingPolicy:0:resource/sagemaker/e:policyName/p"
NOW = 1_800_000_010.0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A state with an alarm that is about to change, and a composite alarm over it."""
    path = tmp_path_factory.mktemp("alarms") / "state.db"
    upgrade(f"sqlite:///{path}")
    database = Database(f"sqlite:///{path}")
    with database.write() as connection:
        for name in ("messages", "events"):
            queue_store.insert(connection, queue(name))
        attributes = {"RawMessageDelivery": "true"}
        topic_store.insert(connection, TopicRecord(arn=TOPIC, created_at=0, attributes={}))
        subscription_store.insert(
            connection,
            SubscriptionRecord(
                arn=f"{TOPIC}:0",
                topic_arn=TOPIC,
                protocol="sqs",
                endpoint=queue_arn("messages"),
                state=SubscriptionState.CONFIRMED,
                created_at=0,
                attributes=attributes,
                token="t",
                token_expires_at=0,
            ),
        )
        put_alarms(connection, alarms_over(database).changes)
        # From here on.
        pattern = json.dumps({"detail-type": ["CloudWatch Alarm State Change"]})
        rule = RuleRecord(name="r", arn="r", state=ENABLED, event_pattern=pattern, created_at=0)
        rule_store.put(connection, rule)
        target = TargetRecord(
            rule_name="r", target_id="t", target_arn=queue_arn("events"), definition={}
        )
        target_store.put(connection, target)
    database.close()
    return path


def put_alarms(connection, changes):
    samples = {(Series("Mine", "m", ()), int(NOW // 60) - 1): of_values({9.0: 1})}
    add(connection, samples, 10)
    definition = {
        "AlarmName": "a",
        "Namespace": "Mine",
        "MetricName": "m",
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 5.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "AlarmActions": [TOPIC, POLICY],
    }
    changes.put_metric_alarm(connection, definition, {}, NOW - 60)
    composite = {"AlarmName": "c", "AlarmRule": "ALARM(a)", "AlarmActions": [TOPIC]}
    changes.put_composite_alarm(connection, composite, {}, NOW - 60)


def queue(name):
    return QueueRecord(name=name, queue_id=name, created_at=0, modified_at=0, attributes={})


def queue_arn(name):
    return f"arn:aws:sqs:{ACCOUNT}:{name}"


def test_nothing_is_lost_or_repeated(prepared, tmp_path):
    command = [sys.executable, "-m", "support.alarm_kills", prepared, tmp_path, str(NOW)]
    support = str(Path(__file__).parents[1])
    subprocess.run(command, check=True, timeout=300, env={**os.environ, "PYTHONPATH": support})
    states = sorted(tmp_path.glob("*.db"))
    assert len(states) > 20
    for state in states:
        with opened_state(state) as database:
            take_pass(database, NOW + 1)
            take_pass(database, NOW + 2)
            check(database, state.stem)


def check(database, statement):
    with database.read() as connection:
        records = store.get_some(connection, ["a", "c"])
        items = history.page(
            connection,
            name=None,
            kinds=list(AlarmKind),
            item_type="Action",
            start=None,
            end=None,
            after=None,
            ascending=True,
            limit=100,
        )
        calls = tags.get(connection, INVOKED)
        counts = {
            name: message_store.counts(connection, queue(name), NOW + 10)[0]
            for name in ("messages", "events")
        }
    where = f"killed before statement {statement}"
    assert {record.state for record in records.values()} == {"ALARM"}, where
    assert counts == {"messages": 2, "events": 2}, where
    assert len(items) == 3, where
    assert list(calls.values()) == ["1"], where
