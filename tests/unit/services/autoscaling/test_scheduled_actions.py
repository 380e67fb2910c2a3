"""The operations of scheduled actions."""

from datetime import UTC, datetime

import pytest

from sagehen.services.autoscaling import store

RESOURCE = "endpoint/e/variant/v"


@pytest.fixture
def scaling(scaling):
    scaling.register()
    return scaling


def put(scaling, schedule="rate(1 hour)", **more):
    bounds = {"ScalableTargetAction": {"MinCapacity": 2, "MaxCapacity": 4}}
    given = {"ScheduledActionName": "a", "Schedule": schedule} | bounds | more
    given = {name: value for name, value in given.items() if value is not None}
    return scaling.PutScheduledAction(**given)


def described(scaling, **more):
    return scaling.DescribeScheduledActions(**more)["ScheduledActions"]


def at(scaling, seconds):
    return datetime.fromtimestamp(scaling.clock.now() + seconds, UTC)


def test_a_scheduled_action_is_described(scaling):
    times = {"StartTime": at(scaling, 60), "EndTime": at(scaling, 6000)}
    assert put(scaling, "cron(0 9 * * ? *)", Timezone="Europe/Berlin", **times) == {}
    (action,) = described(scaling)
    arn = action.pop("ScheduledActionARN")
    assert arn.startswith("arn:aws:autoscaling:us-east-1:000000000000:scheduledAction:")
    assert arn.endswith(f":resource/sagemaker/{RESOURCE}:scheduledActionName/a")
    assert action == {
        "ScheduledActionName": "a",
        "ServiceNamespace": "sagemaker",
        "Schedule": "cron(0 9 * * ? *)",
        "Timezone": "Europe/Berlin",
        "ResourceId": RESOURCE,
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "ScalableTargetAction": {"MinCapacity": 2, "MaxCapacity": 4},
        "CreationTime": at(scaling, 0),
        **times,
    }


def test_an_update_keeps_all_but_the_times(scaling):
    put(scaling, "rate(2 hours)", StartTime=at(scaling, 60), EndTime=at(scaling, 6000))
    (before,) = described(scaling)
    scaling.PutScheduledAction(ScheduledActionName="a", ScalableTargetAction={"MinCapacity": 1})
    (after,) = described(scaling)
    assert after.pop("ScalableTargetAction") == {"MinCapacity": 1}
    for name in ("StartTime", "EndTime", "ScalableTargetAction"):
        del before[name]
    assert after == before


def test_actions_are_listed_and_deleted(scaling, refused):
    for name in ("a", "b", "c"):
        put(scaling, ScheduledActionName=name)
    page = scaling.DescribeScheduledActions(MaxResults=2)
    rest = scaling.DescribeScheduledActions(MaxResults=2, NextToken=page["NextToken"])
    found = [*page["ScheduledActions"], *rest["ScheduledActions"]]
    assert [action["ScheduledActionName"] for action in found] == ["a", "b", "c"]
    assert len(described(scaling, ScheduledActionNames=["b", "x"])) == 1
    assert scaling.DeleteScheduledAction(ScheduledActionName="b") == {}
    assert len(described(scaling)) == 2
    message = refused(
        lambda: scaling.DeleteScheduledAction(ScheduledActionName="b"), "ObjectNotFoundException"
    )
    assert message.startswith("No scheduled action found for")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"Schedule": None}, "Schedule is required"),
        ({"ScalableTargetAction": None}, "ScalableTargetAction is required"),
        (
            {"ScalableTargetAction": {}},
            "At least one of minimum capacity and maximum capacity should be provided",
        ),
        (
            {"ScalableTargetAction": {"MinCapacity": 3, "MaxCapacity": 2}},
            "MinCapacity must not be greater",
        ),
        ({"ScalableTargetAction": {"MaxCapacity": -1}}, "MaxCapacity must be from 0"),
        ({"Schedule": "daily"}, "'daily' is not a schedule"),
        (
            {"Schedule": "at(2020-01-01T00:00:00)"},
            "The schedule at(2020-01-01T00:00:00) is in the past.",
        ),
        ({"Schedule": "cron(0 0 31 2 ? *)"}, "The schedule cron(0 0 31 2 ? *) never comes."),
        ({"Timezone": "Mars/Olympus"}, "'Mars/Olympus' is not the name of an IANA time zone"),
        ({"EndTime": datetime(2020, 1, 1, tzinfo=UTC)}, "EndTime has to be in the future."),
        (
            {
                "StartTime": datetime(2030, 1, 2, tzinfo=UTC),
                "EndTime": datetime(2030, 1, 1, tzinfo=UTC),
            },
            "EndTime has to be after StartTime.",
        ),
    ],
)
def test_bad_actions_are_refused(scaling, refused, given, reason):
    assert refused(lambda: put(scaling, **given)).startswith(reason)
    assert described(scaling) == []


def test_an_update_after_the_last_run_leaves_nothing_for_ever(scaling):
    run_at = f"at({at(scaling, 60):%Y-%m-%dT%H:%M:%S})"
    put(scaling, run_at)
    scaling.clock.seconds += 120
    put(scaling, None)
    scaling.clock.seconds += 86_401
    with scaling.database.write() as connection:
        store.forget_ended_actions(connection, scaling.clock.now() - 86_400)
    assert described(scaling) == []


def test_an_action_needs_a_target(scaling, refused):
    elsewhere = {"ResourceId": "endpoint/no/variant/v"}
    message = refused(lambda: put(scaling, **elsewhere), "ObjectNotFoundException")
    assert message.startswith("No scalable target registered for service namespace: sagemaker")


def test_there_are_so_many_actions(scaling, refused, monkeypatch):
    monkeypatch.setattr("sagehen.services.autoscaling.scheduled_actions.MAX_ACTIONS", 1)
    put(scaling)
    put(scaling, "rate(2 hours)")
    refused(lambda: put(scaling, ScheduledActionName="b"), "LimitExceededException")
