"""The event of a target that has been scaled out to its maximum, and resources that go."""

import pytest

from sagehen.wire.errors import AwsError

RESOURCE = "endpoint/e/variant/v"


@pytest.fixture
def scaling(scaling):
    scaling.register(1, 4)
    scaling.arn = scaling.step(change=2)["PolicyARN"]
    return scaling


def test_reaching_the_maximum_is_an_event(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.pass_time(2.5)
    assert scaling.events == []
    scaling.settle()
    (event,) = scaling.events
    assert event.happened_at == scaling.clock.now()
    assert event.detail == {
        "startTime": "2027-01-15T08:00:00.000Z",
        "endTime": "2027-01-15T08:00:02.500Z",
        "newDesiredCapacity": 4,
        "oldDesiredCapacity": 2,
        "minCapacity": 1,
        "maxCapacity": 4,
        "resourceId": RESOURCE,
        "scalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "serviceNamespace": "sagemaker",
        "statusCode": "Successful",
        "scaledToMax": True,
        "direction": "scale-out",
    }


def test_less_than_the_maximum_is_none(scaling):
    scaling.register(1, 5)
    scaling.alarm(scaling.arn, 60)
    scaling.settle()
    assert scaling.events == []


def test_a_scale_in_to_a_lowered_maximum_is_none(scaling):
    scaling.register(1, 1)
    scaling.settle()
    assert scaling.fleet.counts == {RESOURCE: 1}
    assert scaling.events == []


def test_a_resource_takes_its_targets_with_it(scaling):
    scaling.track()
    scaling.fleet.counts["endpoint/e2/variant/v"] = 1
    scaling.register(1, 2, ResourceId="endpoint/e2/variant/v")
    with scaling.database.write() as connection:
        scaling.autoscaler.deregister_all(connection, "endpoint/E/variant/", 0)
    (left,) = scaling.DescribeScalableTargets()["ScalableTargets"]
    assert left["ResourceId"] == "endpoint/e2/variant/v"
    assert scaling.alarms.definitions == {}


def test_a_count_that_was_refused_is_set_when_there_is_room(scaling):
    scaling.fleet.refusal = AwsError("ResourceLimitExceeded", "There is no room.", 400)
    scaling.register(3, 4)
    for number in (2, 3):  # Other resources change, and there is still no room.
        scaling.fleet.counts["endpoint/e2/variant/v"] = number
        scaling.look()
    assert [one["StatusCode"] for one in scaling.activities()] == ["Failed"]
    assert "There is no room." in scaling.activities()[0]["StatusMessage"]
    scaling.fleet.refusal = None
    scaling.fleet.counts["endpoint/e2/variant/v"] = 1
    scaling.look()
    scaling.settle()
    assert scaling.fleet.counts[RESOURCE] == 3
    assert [one["StatusCode"] for one in scaling.activities()] == ["Successful", "Failed"]


def test_a_scheduled_count_that_is_refused_fails_once(scaling):
    scaling.fleet.refusal = AwsError("ResourceLimitExceeded", "There is no room.", 400)
    bounds = {"MinCapacity": 3, "MaxCapacity": 4}
    scaling.PutScheduledAction(
        ScheduledActionName="a", Schedule="rate(1 hour)", ScalableTargetAction=bounds
    )
    scaling.pass_time(3600)
    scaling.look()
    assert [one["StatusCode"] for one in scaling.activities()] == ["Failed", "Successful"]
    scaling.fleet.refusal = None
    scaling.fleet.counts["endpoint/e2/variant/v"] = 1
    scaling.look()
    assert scaling.fleet.counts[RESOURCE] == 3
