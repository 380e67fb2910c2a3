"""Runs a policy when an alarm calls it: gathers the facts, decides, acts, logs."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.activities import cause_of_alarm, record_not_scaled
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.policies.decision import decide
from sagehen.services.autoscaling.policies.facts import (
    Breach,
    Decision,
    PolicyFacts,
    ScalingFacts,
    read_configuration,
)
from sagehen.services.autoscaling.records import PolicyRecord, ScalableTargetRecord
from sagehen.services.autoscaling.resources import AlarmCall, Capacity

__all__ = ["BREACH_SECONDS", "PolicyInvocations", "gather_facts"]

log = logging.getLogger(__name__)

BREACH_SECONDS = 90.0
"""how long an alarm's call holds: an alarm repeats it each minute for as long as it is in ALARM"""
_POLICY = re.compile(
    r"arn:[a-z-]+:autoscaling:[a-z0-9-]+:[0-9]+:scalingPolicy:(?P<policy_id>[0-9a-f-]{36}):"
    r"resource/.+?:policyName/.+"
)
_CREATED_BY = re.compile(r":createdBy/[0-9a-f-]{36}$")


class PolicyInvocations:
    """Carries out the calls of policies by alarms."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        self._autoscaler = autoscaler

    def invoke(self, connection: Connection, call: AlarmCall, now: datetime) -> str | None:
        """Runs a policy in the transaction that writes the alarm's state; returns why it could not,
        or None."""
        policies = _find(connection, call.action_arn)
        if not policies:
            return f"No scaling policy found for the ARN {call.action_arn}"
        if not call.values:
            return "Metric data points must be provided"
        acting = _of_arn(policies, call.action_arn)
        at = now.timestamp()
        target = self._locked_target(connection, acting.target_id, at)
        capacity = self._autoscaler.capacity(connection, target.key)
        if capacity is None:
            return f"The resource {target.resource_id} does not exist"
        breach = Breach(
            alarm_name=call.alarm_name,
            threshold=call.threshold,
            comparison=call.comparison,
            values=tuple(call.values),
            at=at,
        )
        if len(policies) > 1:  # Only the calls of other policies need it.
            store.record_breach(connection, acting.policy_id, breach)
        acting = msgspec.structs.replace(acting, breach=breach)
        policies = [acting if one.name == acting.name else one for one in policies]
        facts = gather_facts(target, capacity, acting.name, policies, at)
        decision = decide(facts)
        _log(target, capacity, breach, decision)
        self._act(connection, target, capacity, facts, decision)
        return None

    def _locked_target(
        self, connection: Connection, target_id: str, now: float
    ) -> ScalableTargetRecord:
        target = store.target_by_id(connection, target_id)
        assert target is not None
        running = store.activities_in_progress(connection, target.key)
        if running and self._autoscaler.end_activities(connection, running, now):
            # A cooldown may have begun.
            target = store.target_by_id(connection, target_id)
            assert target is not None
        return target

    def _act(
        self,
        connection: Connection,
        target: ScalableTargetRecord,
        capacity: Capacity,
        facts: ScalingFacts,
        decision: Decision,
    ) -> None:
        text = f"Policy {decision.policy}: {decision.reason}"
        if decision.desired is None and text == target.last_decision:
            return  # It is written already, as each minute before.
        winner = next(policy for policy in facts.policies if policy.name == decision.policy)
        assert winner.breach is not None
        cause = cause_of_alarm(winner.breach.alarm_name, winner.name)
        if decision.desired is not None:
            change = (target, capacity, decision.desired, cause, facts.now, decision.before)
            self._autoscaler.change(connection, *change)
        elif decision.not_scaled is not None:
            record_not_scaled(connection, target.key, cause, decision.not_scaled, facts.now)
        decided = msgspec.structs.replace(target, last_decision=text, decided_at=facts.now)
        store.put_target(connection, decided)


def _find(connection: Connection, action_arn: str) -> list[PolicyRecord]:
    """Returns the policy that an alarm's action names, with all of its target; none if it is not
    there."""
    match = _POLICY.fullmatch(_bare(action_arn))
    found = store.fellow_policies(connection, match["policy_id"]) if match else []
    return found if any(one.arn == _bare(action_arn) for one in found) else []


def _of_arn(policies: Sequence[PolicyRecord], action_arn: str) -> PolicyRecord:
    return next(one for one in policies if one.arn == _bare(action_arn))


def _bare(action_arn: str) -> str:
    return _CREATED_BY.sub("", action_arn)


def gather_facts(
    target: ScalableTargetRecord,
    capacity: Capacity,
    acting: str,
    policies: Sequence[PolicyRecord],
    now: float,
) -> ScalingFacts:
    return ScalingFacts(
        now=now,
        capacity=capacity.desired,
        minimum=target.minimum,
        maximum=target.maximum,
        acting=acting,
        policies=tuple(_facts_of(policy, now) for policy in policies),
        not_scalable=capacity.not_scalable,
        scale_out_suspended=target.suspended.dynamic_scaling_out_suspended,
        scale_in_suspended=target.suspended.dynamic_scaling_in_suspended,
        last_out=target.last_out,
        last_in=target.last_in,
    )


def _facts_of(policy: PolicyRecord, now: float) -> PolicyFacts:
    breach = policy.breach
    # A call of the future is one before the clock was set back.
    holds = breach is not None and 0 <= now - breach.at < BREACH_SECONDS
    return PolicyFacts(
        name=policy.name,
        configuration=read_configuration(policy.policy_type, policy.configuration),
        breach=breach if holds else None,
    )


def _log(
    target: ScalableTargetRecord, capacity: Capacity, breach: Breach, decision: Decision
) -> None:
    extra = {
        "action": "scaling_decision",
        "resource": target.resource_id,
        "dimension": target.dimension,
        "policy": decision.policy,
        "alarm": breach.alarm_name,
        "values": list(breach.values[:5]),
        "threshold": breach.threshold,
        "capacity": capacity.desired,
        "running": capacity.current,
        "minimum": target.minimum,
        "maximum": target.maximum,
        "desired": decision.desired,
        "reason": decision.reason,
        "not_scaled": decision.not_scaled and decision.not_scaled.code.value,
    }
    log.info("A scaling policy was run.", extra=extra)
