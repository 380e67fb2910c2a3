"""Cooldowns: the time after a completed change in which its effect is awaited.

A scale-out in a scale-out's cooldown goes only beyond what that one added. A scale-in waits for
both cooldowns. A scale-out ends a scale-in's cooldown.
"""

from sagehen.services.autoscaling.policies.facts import LastScaling, PolicyConfiguration

__all__ = ["cooling_out", "seconds_until_scale_in"]


def cooling_out(
    policy: PolicyConfiguration, last_out: LastScaling | None, now: float
) -> LastScaling | None:
    """Returns the scale-out whose cooldown has not ended."""
    if last_out is None or _left(last_out, policy.scale_out_cooldown, now) <= 0:
        return None
    return last_out


def seconds_until_scale_in(
    policy: PolicyConfiguration,
    last_out: LastScaling | None,
    last_in: LastScaling | None,
    now: float,
) -> float:
    """Returns 0 or less if no cooldown is in the way."""
    after_out = _left(last_out, policy.scale_out_cooldown, now)
    return max(after_out, _left(last_in, policy.scale_in_cooldown, now))


def _left(last: LastScaling | None, cooldown_seconds: int, now: float) -> float:
    # A clock that was set back must not prolong a cooldown.
    return 0.0 if last is None or last.ended_at > now else last.ended_at + cooldown_seconds - now
