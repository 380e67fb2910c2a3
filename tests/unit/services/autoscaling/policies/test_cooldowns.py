"""When cooldowns end."""

from sagehen.services.autoscaling.policies.cooldowns import cooling_out, seconds_until_scale_in
from sagehen.services.autoscaling.policies.facts import LastScaling, TargetTracking

POLICY = TargetTracking(target_value=1, scale_out_cooldown=60, scale_in_cooldown=300)
LAST = LastScaling(ended_at=1000, before=2)


def test_a_scale_out_cools_until_its_cooldown_has_passed():
    assert cooling_out(POLICY, None, 1000) is None
    assert cooling_out(POLICY, LAST, 1059) is LAST
    assert cooling_out(POLICY, LAST, 1060) is None


def test_a_scale_in_waits_for_both_cooldowns():
    assert seconds_until_scale_in(POLICY, None, None, 1000) <= 0
    assert seconds_until_scale_in(POLICY, LAST, None, 1010) == 50
    assert seconds_until_scale_in(POLICY, None, LAST, 1010) == 290
    assert seconds_until_scale_in(POLICY, LAST, LAST, 1300) <= 0


def test_a_clock_that_was_set_back_prolongs_no_cooldown():
    assert cooling_out(POLICY, LAST, 900) is None
    assert seconds_until_scale_in(POLICY, LAST, LAST, 900) <= 0
