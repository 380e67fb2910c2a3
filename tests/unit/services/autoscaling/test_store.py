"""The rows of Application Auto Scaling, in either kind of database."""

import msgspec
import pytest

from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.activities import change_activity
from sagehen.services.autoscaling.dimensions import INSTANCES
from sagehen.services.autoscaling.policies.facts import Breach, LastScaling
from sagehen.services.autoscaling.records import (
    ActivityStatus,
    AlarmName,
    PolicyRecord,
    ScalableTargetRecord,
    ScheduledActionRecord,
    Suspensions,
    TargetKey,
)

TARGET = ScalableTargetRecord(
    target_id="t",
    resource_id="endpoint/e/variant/v",
    dimension=INSTANCES,
    arn="arn:t",
    minimum=1,
    maximum=4,
    suspended=Suspensions(scheduled_scaling_suspended=True),
    created_at=1.5,
    last_out=LastScaling(ended_at=2.5, before=3),
)
POLICY = PolicyRecord(
    policy_id="p1",
    target_id="t",
    name="p",
    arn="arn:p",
    policy_type="StepScaling",
    configuration={"AdjustmentType": "ExactCapacity"},
    alarms=(AlarmName(alarm_name="a", alarm_arn="arn:a"),),
    created_at=1.5,
)
BREACH = Breach(alarm_name="a", threshold=1, comparison="GreaterThanThreshold", values=(2.0,), at=9)


@pytest.fixture
def connection(any_database):
    with any_database.write() as connection:
        store.put_target(connection, TARGET)
        yield connection


def test_targets_are_found_replaced_and_listed(connection):
    assert store.find_target(connection, TARGET.key, lock=True) == TARGET
    changed = msgspec.structs.replace(TARGET, maximum=9, last_out=None)
    store.put_target(connection, changed)
    assert store.target_by_id(connection, "t") == changed
    other = msgspec.structs.replace(TARGET, target_id="u", resource_id="endpoint/f/variant/v")
    store.put_target(connection, other)
    page = store.listed_targets(connection, None, INSTANCES, None, 1)
    after = (page[0].resource_id, page[0].dimension)
    rest = store.listed_targets(connection, None, INSTANCES, after, 5)
    assert (page, rest) == ([changed], [other])
    assert store.targets_of(connection, "endpoint/E/variant/") == [changed]


def test_policies_are_found_by_their_fellows_and_keep_breaches(connection):
    store.put_policy(connection, POLICY)
    store.put_policy(connection, msgspec.structs.replace(POLICY, policy_id="p2", name="q"))
    store.record_breach(connection, "p1", BREACH)
    found = store.fellow_policies(connection, "p2")
    assert [policy.name for policy in found] == ["p", "q"]
    assert found[0] == msgspec.structs.replace(POLICY, breach=BREACH)
    key = (TARGET.resource_id, INSTANCES)
    listed = store.listed_policies(connection, key, None, (*key, "p"), 5)
    assert [(policy.name, of) for policy, of in listed] == [("q", TARGET.key)]
    assert store.count_policies(connection) == {"t": 2}


def test_actions_are_due_in_their_order_and_go_with_their_target(connection):
    for number, next_at in ((1, 20.0), (2, 10.0), (3, None)):
        action = ScheduledActionRecord(
            action_id=str(number),
            target_id="t",
            name=f"a{number}",
            arn="arn:a",
            schedule="rate(1 hour)",
            minimum=1,
            created_at=0,
            next_at=next_at,
            ended_at=5.0 if next_at is None else None,
        )
        store.put_action(connection, action)
    assert [action.name for action in store.due_actions(connection, 20)] == ["a2", "a1"]
    assert store.next_due_at(connection) == 10
    store.forget_ended_actions(connection, 6)
    assert store.find_action(connection, "t", "a3") is None
    store.put_policy(connection, POLICY)
    store.delete_target(connection, "t")
    assert store.due_actions(connection, 99) == []
    assert store.fellow_policies(connection, "p1") == []


def test_activities_are_numbered_changed_and_forgotten(connection):
    made = [
        change_activity(TARGET.key, f"cause {number}", number, desired=2, capacity=1, before=1)
        for number in range(4)
    ]
    for activity in made:
        store.add_activity(connection, activity)
    ended = msgspec.structs.replace(made[3], status=ActivityStatus.SUCCESSFUL, ended_at=9)
    store.update_activity(connection, ended)
    assert store.activities_in_progress(connection, TARGET.key) == made[:3]
    assert store.activities_in_progress(connection, TargetKey("x", INSTANCES)) == []
    page = store.activities(connection, (None, INSTANCES), False, None, 2)
    assert [activity for _, activity in page] == [ended, made[2]]
    rest = store.activities(connection, (TARGET.resource_id, None), True, page[-1][0], 9)
    assert [activity for _, activity in rest] == [made[1], made[0]]
    store.forget_old_activities(connection, 1)
    store.forget_surplus_activities(connection, 2)
    left = store.activities(connection, (None, None), True, None, 9)
    assert [activity for _, activity in left] == [ended, made[2]]
