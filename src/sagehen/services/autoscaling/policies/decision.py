"""Decides what becomes of an alarm's call of a policy: facts in, decision out.

Of several policies that ask at once the largest capacity wins. All tracking policies that may
scale in have to agree to a scale-in by tracking.
"""

from typing import NamedTuple

from sagehen.services.autoscaling.policies.cooldowns import cooling_out, seconds_until_scale_in
from sagehen.services.autoscaling.policies.facts import (
    Decision,
    NotScaled,
    NotScaledCode,
    PolicyFacts,
    ScalingFacts,
    TargetTracking,
)
from sagehen.services.autoscaling.policies.step_scaling import stepped_capacity
from sagehen.services.autoscaling.policies.target_tracking import tracked_capacity

__all__ = ["decide"]


class _Proposal(NamedTuple):
    policy: PolicyFacts
    capacity: int


def decide(facts: ScalingFacts) -> Decision:
    proposals = [
        _Proposal(policy, capacity)
        for policy in facts.policies
        if (capacity := _proposed(policy, facts, facts.capacity)) is not None
    ]
    acting = next((one for one in proposals if one.policy.name == facts.acting), None)
    if acting is None:
        return _nothing(facts.acting, "No step of the policy is for this metric.")
    largest = max(proposals, key=lambda one: one.capacity)
    if largest.capacity > facts.capacity:
        if acting.capacity > facts.capacity:
            return _scale_out(facts, largest)
        return _nothing(facts.acting, f"Policy {largest.policy.name} asks for more capacity.")
    if acting.capacity == facts.capacity:
        return _kept(facts, acting)
    return _scale_in(facts, acting, proposals)


def _proposed(policy: PolicyFacts, facts: ScalingFacts, capacity: int) -> int | None:
    if policy.breach is None:
        return None
    if isinstance(policy.configuration, TargetTracking):
        bounds = facts.minimum, facts.maximum
        return tracked_capacity(policy.configuration, policy.breach, capacity, *bounds)
    return stepped_capacity(policy.configuration, policy.breach, capacity)


def _scale_out(facts: ScalingFacts, proposal: _Proposal) -> Decision:
    policy, now = proposal.policy, facts.now
    if facts.capacity >= facts.maximum:
        reason = NotScaled(code=NotScaledCode.AT_MAXIMUM, maximum=facts.maximum)
        return _not_scaled(facts, reason, policy.name)
    if facts.scale_out_suspended:
        return _nothing(policy.name, "Scaling out is suspended.")
    before, wanted = facts.capacity, proposal.capacity
    cooling = cooling_out(policy.configuration, facts.last_out, now)
    if cooling is not None:
        before = min(cooling.before, facts.capacity)
        wanted = _proposed(policy, facts, before) or 0
        if wanted <= facts.capacity:
            return _nothing(
                policy.name,
                f"The cooldown of the scale-out from {before} has not ended, and no more than it "
                "added is asked for.",
            )
    return _change(facts, policy, wanted, before)


def _scale_in(facts: ScalingFacts, acting: _Proposal, proposals: list[_Proposal]) -> Decision:
    policy = acting.policy
    if facts.capacity <= facts.minimum:
        reason = NotScaled(code=NotScaledCode.AT_MINIMUM, minimum=facts.minimum)
        return _not_scaled(facts, reason)
    if facts.scale_in_suspended:
        return _nothing(policy.name, "Scaling in is suspended.")
    if isinstance(policy.configuration, TargetTracking) and (other := _dissenting(facts)):
        return _nothing(policy.name, f"Policy {other} does not agree to a scale-in.")
    largest = max(proposals, key=lambda one: one.capacity)
    if largest.capacity >= facts.capacity:
        return _kept(facts, largest)
    left = seconds_until_scale_in(policy.configuration, facts.last_out, facts.last_in, facts.now)
    if left > 0:
        return _nothing(policy.name, f"A cooldown ends in {left:.0f} s.")
    return _change(facts, largest.policy, largest.capacity, facts.capacity)


def _dissenting(facts: ScalingFacts) -> str | None:
    """Returns a tracking policy that could scale in, but whose metric is not low."""
    for policy in facts.policies:
        configuration = policy.configuration
        may_scale_in = (
            isinstance(configuration, TargetTracking) and not configuration.disable_scale_in
        )
        if may_scale_in and (policy.breach is None or policy.breach.is_above):
            return policy.name
    return None


def _change(facts: ScalingFacts, policy: PolicyFacts, wanted: int, before: int) -> Decision:
    desired = min(max(wanted, facts.minimum), facts.maximum)
    if desired == facts.capacity:
        code = NotScaledCode.AT_DESIRED
        reason = NotScaled(code=code, current=facts.capacity)
        return _not_scaled(facts, reason, policy.name)
    if facts.not_scalable is not None:
        reason = NotScaled(code=NotScaledCode.UNSCALABLE)
        return _not_scaled(facts, reason, policy.name)
    assert policy.breach is not None
    value, threshold = policy.breach.values[0], policy.breach.threshold
    direction = "above" if policy.breach.is_above else "below"
    return Decision(
        policy=policy.name,
        reason=f"The metric is {value:g}, {direction} the threshold {threshold:g} of alarm "
        f"{policy.breach.alarm_name}.",
        desired=desired,
        before=before,
    )


def _kept(facts: ScalingFacts, proposal: _Proposal) -> Decision:
    """Decides on a breach that asks for no other capacity."""
    breach = proposal.policy.breach
    assert breach is not None
    if breach.is_above and facts.capacity >= facts.maximum:
        reason = NotScaled(code=NotScaledCode.AT_MAXIMUM, maximum=facts.maximum)
    elif not breach.is_above and facts.capacity <= facts.minimum:
        reason = NotScaled(code=NotScaledCode.AT_MINIMUM, minimum=facts.minimum)
    elif isinstance(proposal.policy.configuration, TargetTracking):
        reason = NotScaled(code=NotScaledCode.FLAPPING)
    else:
        reason = NotScaled(code=NotScaledCode.AT_DESIRED, current=facts.capacity)
    return _not_scaled(facts, reason, proposal.policy.name)


def _nothing(policy: str, reason: str) -> Decision:
    return Decision(policy=policy, reason=reason)


def _not_scaled(facts: ScalingFacts, not_scaled: NotScaled, policy: str | None = None) -> Decision:
    texts = {
        NotScaledCode.AT_MAXIMUM: f"The capacity is at its maximum, {not_scaled.maximum}.",
        NotScaledCode.AT_MINIMUM: f"The capacity is at its minimum, {not_scaled.minimum}.",
        NotScaledCode.AT_DESIRED: f"The capacity is right as it is, {not_scaled.current}.",
        NotScaledCode.FLAPPING: "A removal would push the metric over its target.",
        NotScaledCode.UNSCALABLE: facts.not_scalable or "",
    }
    reason = texts[not_scaled.code]
    return Decision(policy=policy or facts.acting, reason=reason, not_scaled=not_scaled)
