"""Scaling activities: how they end, are listed and forgotten."""

import pytest

from sagehen.services.autoscaling.activities import HISTORY_SECONDS

RESOURCE = "endpoint/e/variant/v"


@pytest.fixture
def scaling(scaling):
    scaling.register()
    scaling.arn = scaling.step(Cooldown=0)["PolicyARN"]
    return scaling


def ended(scaling):
    (activity,) = scaling.activities()
    return activity["StatusCode"], activity.get("StatusMessage")


def test_an_activity_goes_on_until_the_resource_has_settled(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.look()
    assert ended(scaling) == ("InProgress", None)


def test_instances_that_did_not_start_leave_it_unfulfilled(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.fleet.counts[RESOURCE], scaling.fleet.failure = 2, "CapacityError: none left."
    scaling.settle()
    assert ended(scaling) == (
        "Unfulfilled",
        "Failed to set desired instance count to 3. Reason: CapacityError: none left.",
    )


def test_another_change_overrides_it(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.fleet.counts[RESOURCE] = 7
    scaling.look()
    assert ended(scaling)[0] == "Overridden"


def test_without_its_resource_it_is_unfulfilled(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.fleet.counts.clear()
    scaling.look()
    assert ended(scaling)[0] == "Unfulfilled"


def test_a_failed_change_starts_no_cooldown(scaling):
    scaling.step(Cooldown=300)
    scaling.alarm(scaling.arn, 60)
    scaling.fleet.counts[RESOURCE], scaling.fleet.failure = 2, "No."
    scaling.settle()
    scaling.alarm(scaling.arn, 60)
    assert scaling.fleet.counts == {RESOURCE: 3}


def test_they_are_listed_newest_first_in_pages(scaling, refused):
    for _ in range(3):
        scaling.alarm(scaling.arn, 60)
        scaling.settle()
    page = scaling.DescribeScalingActivities(MaxResults=2)
    texts = [activity["Description"][-2:] for activity in page["ScalingActivities"]]
    rest = scaling.DescribeScalingActivities(MaxResults=2, NextToken=page["NextToken"])
    texts += [activity["Description"][-2:] for activity in rest["ScalingActivities"]]
    assert texts == ["5.", "4.", "3."]
    assert "NextToken" not in rest
    assert scaling.activities(ResourceId="endpoint/no/variant/v") == []
    assert len(scaling.activities(ResourceId=None, ScalableDimension=None)) == 3
    refused(
        lambda: scaling.DescribeScalingActivities(NextToken="eA=="), "InvalidNextTokenException"
    )


def test_they_outlive_their_target_by_six_weeks(scaling):
    scaling.alarm(scaling.arn, 60)
    scaling.settle()
    scaling.DeregisterScalableTarget()
    scaling.pass_time(HISTORY_SECONDS)
    scaling.look()
    assert len(scaling.activities()) == 1
    scaling.pass_time(1)
    scaling.look()
    assert scaling.activities() == []


def test_of_each_target_so_many_are_kept(scaling, monkeypatch):
    for _ in range(4):
        scaling.alarm(scaling.arn, 60)
        scaling.settle()
    monkeypatch.setattr("sagehen.services.autoscaling.loop.MAX_ACTIVITIES", 2)
    scaling.look()
    texts = [activity["Description"][-2:] for activity in scaling.activities()]
    assert texts == ["6.", "5."]
