"""Delivery policies: which delays they stand for, and which are none."""

import json
from typing import Any

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.sns.delivery_policy import (
    MAIL_DELAYS,
    HealthyRetryPolicy,
    effective_policy,
    read_subscription_policy,
    read_topic_policy,
)
from sagehen.services.messaging.webhooks import WEBHOOK_DELAYS


def delays(**policy: Any) -> list[float]:
    text = json.dumps({"healthyRetryPolicy": policy})
    retries = read_subscription_policy(text).healthy_retry_policy
    assert retries is not None
    return [round(one, 2) for one in retries.delays()]


def test_the_default_is_three_times_twenty_seconds() -> None:
    assert HealthyRetryPolicy().delays() == [20, 20, 20]


def test_phases_follow_one_another() -> None:
    assert delays(
        minDelayTarget=1,
        maxDelayTarget=5,
        numRetries=9,
        numNoDelayRetries=2,
        numMinDelayRetries=1,
        numMaxDelayRetries=2,
        backoffFunction="linear",
    ) == [0, 0, 1, 2, 3, 4, 5, 5, 5]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("linear", [26, 51, 75.5, 100]),
        ("arithmetic", [7.19, 25.75, 56.69, 100]),
        ("geometric", [3.16, 10, 31.62, 100]),
        ("exponential", [1.45, 4, 18.43, 100]),
    ],
)
def test_delays_grow_from_the_least_to_the_greatest(function: str, expected: list[float]) -> None:
    got = delays(minDelayTarget=1, maxDelayTarget=100, numRetries=4, backoffFunction=function)
    assert got == pytest.approx(expected, abs=0.8)
    assert got[-1] == 100
    assert got == sorted(got)


def test_mail_is_tried_for_six_hours() -> None:
    assert len(MAIL_DELAYS) == 50
    assert sum(MAIL_DELAYS) == pytest.approx(6.6 * 3600, rel=0.1)


def test_webhooks_are_tried_for_three_days() -> None:
    assert sum(WEBHOOK_DELAYS) == pytest.approx(3.15 * 86_400, rel=0.01)


def test_a_subscription_overrides_its_topic_unless_that_forbids_it() -> None:
    topic = {
        "http": {
            "defaultHealthyRetryPolicy": {"numRetries": 5},
            "defaultThrottlePolicy": {"maxReceivesPerSecond": 7},
            "defaultRequestPolicy": {"headerContentType": "application/json"},
        }
    }
    own = json.dumps({"healthyRetryPolicy": {"numRetries": 1}})
    both = effective_policy(json.dumps(topic), own)
    assert both.retries == HealthyRetryPolicy(num_retries=1)
    assert (both.max_per_second, both.content_type) == (7, "application/json")
    topic["http"]["disableSubscriptionOverrides"] = True  # type: ignore[assignment]
    only = effective_policy(json.dumps(topic), own)
    assert only.retries == HealthyRetryPolicy(num_retries=5)
    assert effective_policy(None, None).retries is None


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "[]",
        '{"healthyRetryPolicy": {"numRetries": 101}}',
        '{"healthyRetryPolicy": {"numRetries": -1}}',
        '{"healthyRetryPolicy": {"minDelayTarget": 0}}',
        '{"healthyRetryPolicy": {"minDelayTarget": 21}}',
        '{"healthyRetryPolicy": {"maxDelayTarget": 3601}}',
        '{"healthyRetryPolicy": {"numRetries": 2, "numNoDelayRetries": 3}}',
        '{"healthyRetryPolicy": {"numRetries": 100, "maxDelayTarget": 100}}',
        '{"healthyRetryPolicy": {"backoffFunction": "random"}}',
        '{"throttlePolicy": {"maxReceivesPerSecond": 0}}',
        '{"requestPolicy": {"headerContentType": "text/plain\\r\\nx: y"}}',
        '{"http": {}}',
    ],
)
def test_what_is_no_policy(policy: str) -> None:
    with pytest.raises(Invalid):
        read_subscription_policy(policy)


def test_a_topic_s_policy_is_checked_too() -> None:
    with pytest.raises(Invalid, match="numRetries"):
        read_topic_policy('{"http": {"defaultHealthyRetryPolicy": {"numRetries": 101}}}')
