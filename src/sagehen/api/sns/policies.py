"""EffectiveDeliveryPolicy: what holds where nothing was said."""

from typing import Any

import msgspec

from sagehen.domain.delivery_policy import (
    DEFAULT_CONTENT_TYPE,
    RetryPolicy,
    effective_policy,
    read_topic_policy,
)
from sagehen.domain.topics import SubscriptionRecord, TopicRecord

__all__ = ["effective_subscription_policy", "effective_topic_policy"]


def effective_topic_policy(topic: TopicRecord) -> str:
    """As JSON."""
    said = read_topic_policy(topic.attributes.get("DeliveryPolicy")).http
    effective = effective_policy(topic.attributes.get("DeliveryPolicy"), None)
    http: dict[str, Any] = {
        "defaultHealthyRetryPolicy": effective.retries or RetryPolicy(),
        "disableSubscriptionOverrides": said.disable_subscription_overrides,
        "defaultRequestPolicy": {
            "headerContentType": effective.content_type or DEFAULT_CONTENT_TYPE
        },
    }
    if effective.most_per_second is not None:
        http["defaultThrottlePolicy"] = {"maxReceivesPerSecond": effective.most_per_second}
    return msgspec.json.encode({"http": http}).decode()


def effective_subscription_policy(topic: TopicRecord, subscription: SubscriptionRecord) -> str:
    """As JSON."""
    effective = effective_policy(
        topic.attributes.get("DeliveryPolicy"), subscription.attributes.get("DeliveryPolicy")
    )
    policy: dict[str, Any] = {
        "healthyRetryPolicy": effective.retries or RetryPolicy(),
        "sicklyRetryPolicy": None,
        "throttlePolicy": None,
        "requestPolicy": {"headerContentType": effective.content_type or DEFAULT_CONTENT_TYPE},
        "guaranteed": False,
    }
    if effective.most_per_second is not None:
        policy["throttlePolicy"] = {"maxReceivesPerSecond": effective.most_per_second}
    return msgspec.json.encode(policy).decode()
