"""What becomes of an alarm's call of a policy."""

import pytest

from sagehen.services.autoscaling.policies.decision import decide
from sagehen.services.autoscaling.policies.facts import (
    Breach,
    LastScaling,
    NotScaled,
    NotScaledCode,
    PolicyFacts,
    ScalingFacts,
    StepAdjustment,
    StepScaling,
    TargetTracking,
)

NOW = 10_000.0


def high(*values, threshold=50.0):
    return breach("GreaterThanThreshold", values, threshold)


def low(*values, threshold=45.0):
    return breach("LessThanThreshold", values, threshold)


def breach(comparison, values, threshold):
    return Breach(
        alarm_name="alarm", threshold=threshold, comparison=comparison, values=values, at=NOW
    )


def tracking(name="p", called=None, target=50, **more):
    configuration = TargetTracking(target_value=target, **more)
    return PolicyFacts(name=name, configuration=configuration, breach=called)


def stepping(name="s", called=None, change=1, cooldown=300):
    bounds = {"metric_interval_lower_bound": 0}
    if change < 0:
        bounds = {"metric_interval_upper_bound": 0}
    step = StepAdjustment(scaling_adjustment=change, **bounds)
    configuration = StepScaling(
        adjustment_type="ChangeInCapacity", step_adjustments=(step,), cooldown=cooldown
    )
    return PolicyFacts(name=name, configuration=configuration, breach=called)


def decided(*policies, acting=None, capacity=4, bounds=(1, 10), **more):
    facts = ScalingFacts(
        now=NOW,
        capacity=capacity,
        minimum=bounds[0],
        maximum=bounds[1],
        acting=acting or policies[0].name,
        policies=policies,
        **more,
    )
    return decide(facts)


def test_a_scale_out_is_bounded_by_the_maximum():
    decision = decided(tracking(called=high(400)))
    assert (decision.desired, decision.before, decision.policy) == (10, 4, "p")
    assert decision.reason == "The metric is 400, above the threshold 50 of alarm alarm."


def test_a_scale_in_is_bounded_by_the_minimum():
    decision = decided(tracking(called=low(0)), bounds=(2, 10))
    assert (decision.desired, decision.not_scaled) == (2, None)


@pytest.mark.parametrize(
    ("policy", "capacity", "reason"),
    [
        (
            tracking(called=high(400)),
            10,
            NotScaled(code=NotScaledCode.AT_MAXIMUM, maximum=10),
        ),
        (tracking(called=low(1)), 1, NotScaled(code=NotScaledCode.AT_MINIMUM, minimum=1)),
        (tracking(called=low(0)), 1, NotScaled(code=NotScaledCode.AT_MINIMUM, minimum=1)),
        (tracking(called=low(44)), 2, NotScaled(code=NotScaledCode.FLAPPING)),
        (
            stepping(called=high(60), change=0),
            4,
            NotScaled(code=NotScaledCode.AT_DESIRED, current=4),
        ),
    ],
)
def test_what_cannot_be_scaled_has_a_reason(policy, capacity, reason):
    decision = decided(policy, capacity=capacity)
    assert (decision.desired, decision.not_scaled) == (None, reason)


def test_a_busy_resource_is_not_scaled():
    decision = decided(tracking(called=high(60)), not_scalable="It is Updating.")
    assert (decision.desired, decision.not_scaled.code) == (None, NotScaledCode.UNSCALABLE)
    assert decision.reason == "It is Updating."


def test_a_metric_that_no_step_is_for_does_nothing():
    decision = decided(stepping(called=high(40)))
    assert (decision.desired, decision.not_scaled) == (None, None)


@pytest.mark.parametrize(
    ("called", "suspended"),
    [(high(60), "scale_out_suspended"), (low(1), "scale_in_suspended")],
)
def test_suspended_scaling_does_nothing(called, suspended):
    decision = decided(tracking(called=called), **{suspended: True})
    assert (decision.desired, decision.not_scaled) == (None, None)
    assert "suspended" in decision.reason
    other = {"scale_out_suspended", "scale_in_suspended"} - {suspended}
    assert decided(tracking(called=called), **{other.pop(): True}).desired is not None


class TestSeveralPolicies:
    def test_the_largest_capacity_wins(self):
        decision = decided(tracking("a", high(60)), tracking("b", high(100), target=40))
        assert (decision.policy, decision.desired) == ("b", 10)

    def test_a_scale_out_of_another_policy_stops_a_scale_in(self):
        decision = decided(tracking("a", low(1)), stepping("b", high(60)))
        assert (decision.desired, decision.not_scaled) == (None, None)

    def test_all_tracking_policies_have_to_agree_to_a_scale_in(self):
        assert decided(tracking("a", low(1)), tracking("b")).desired is None
        assert decided(tracking("a", low(1)), tracking("b", disable_scale_in=True)).desired == 1
        assert decided(tracking("a", low(1)), tracking("b", low(20))).desired == 2
        assert decided(tracking("a", low(1)), stepping("b")).desired == 1

    def test_a_policy_that_needs_the_capacity_keeps_it(self):
        decision = decided(tracking("a", low(1)), tracking("b", low(44)))
        assert decision.not_scaled.code is NotScaledCode.FLAPPING


class TestCooldowns:
    out = LastScaling(ended_at=NOW - 100, before=2)

    def test_a_scale_out_in_the_cooldown_only_adds_what_is_more(self):
        # Two were added to two; a step of three makes five of two, one more than four.
        decision = decided(stepping(called=high(60), change=3), last_out=self.out)
        assert (decision.desired, decision.before) == (5, 2)
        decision = decided(stepping(called=high(60), change=2), last_out=self.out)
        assert (decision.desired, decision.not_scaled) == (None, None)
        after = decided(stepping(called=high(60), change=2, cooldown=100), last_out=self.out)
        assert after.desired == 6

    def test_a_tracking_policy_waits_in_the_cooldown_unless_the_metric_grows(self):
        assert decided(tracking(called=high(60)), last_out=self.out).desired is None
        assert decided(tracking(called=high(200)), last_out=self.out).desired == 8

    @pytest.mark.parametrize("last", ["last_out", "last_in"])
    def test_a_scale_in_waits_for_cooldowns(self, last):
        decision = decided(tracking(called=low(1)), **{last: self.out})
        assert (decision.desired, decision.reason) == (None, "A cooldown ends in 200 s.")
        ended = tracking(called=low(1), scale_in_cooldown=100, scale_out_cooldown=100)
        assert decided(ended, **{last: self.out}).desired == 1

    def test_a_scale_out_does_not_wait_for_a_scale_in(self):
        assert decided(tracking(called=high(60)), last_in=self.out).desired == 5
