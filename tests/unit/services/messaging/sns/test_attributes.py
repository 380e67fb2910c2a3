"""Attributes of topics and subscriptions: which values and which protocols they have."""

import json

import pytest

from sagehen.services.messaging.sns.attributes import (
    check_subscription_attributes,
    check_topic_attributes,
    effective_subscription_policy,
    effective_topic_policy,
)
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.wire.errors import AwsError

DEAD = '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead"}'


def test_empty_values_are_dropped() -> None:
    assert check_topic_attributes({"DisplayName": "", "SignatureVersion": "2"}) == {
        "SignatureVersion": "2"
    }


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"DisplayName": "x" * 101}, "at most 100 characters"),
        ({"DisplayName": "a\r\nBcc: b@example.org"}, "line breaks"),
        ({"SignatureVersion": "3"}, "Allowed values are: 1, 2"),
        ({"Policy": "[]"}, "must be a JSON object"),
        ({"Policy": '{"a": "' + "x" * 300_000 + '"}'}, "it is over"),
        ({"DeliveryPolicy": '{"http": {"other": 1}}'}, "DeliveryPolicy"),
        ({"Owner": "x"}, "Sagehen does not have Owner"),
    ],
)
def test_topic_attributes_that_are_refused(attributes: dict[str, str], message: str) -> None:
    with pytest.raises(AwsError, match=message):
        check_topic_attributes(attributes)


@pytest.mark.parametrize(
    ("attributes", "protocol", "message"),
    [
        ({"RawMessageDelivery": "yes"}, "http", "Must be true or false"),
        ({"RawMessageDelivery": "true"}, "email", "not supported for protocol type .email."),
        ({"DeliveryPolicy": "{}"}, "sqs", "not supported for protocol type .sqs."),
        ({"WebhookSecret": "short"}, "webhook", "a secret is whsec_"),
        ({"FilterPolicy": "[]"}, "sqs", "must be a JSON object"),
        ({"FilterPolicy": '{"a": 1}'}, "sqs", "FilterPolicy"),
        ({"FilterPolicyScope": "Other"}, "sqs", "Please use either"),
        ({"RedrivePolicy": DEAD.replace('dead"}', 'dead.fifo"}')}, "sqs", "not FIFO"),
        ({"RedrivePolicy": "{}"}, "sqs", "RedrivePolicy"),
    ],
)
def test_subscription_attributes_that_are_refused(
    attributes: dict[str, str], protocol: str, message: str
) -> None:
    with pytest.raises(AwsError, match=message):
        check_subscription_attributes(attributes, protocol)


def test_the_scope_decides_how_a_policy_is_read() -> None:
    nested = {"FilterPolicy": '{"a": {"b": ["c"]}}'}
    with pytest.raises(AwsError):
        check_subscription_attributes(nested, "sqs")
    body = {**nested, "FilterPolicyScope": "MessageBody", "RedrivePolicy": DEAD}
    assert check_subscription_attributes(body, "sqs") == body


def test_a_subscription_s_policy_is_its_own_before_its_topic_s() -> None:
    policy = {"http": {"defaultThrottlePolicy": {"maxReceivesPerSecond": 7}}}
    topic = TopicRecord(arn="t", created_at=0, attributes={"DeliveryPolicy": json.dumps(policy)})
    own = {"healthyRetryPolicy": {"numRetries": 1}}
    subscription = SubscriptionRecord(
        arn="s",
        topic_arn="t",
        protocol="http",
        endpoint="http://h/",
        state=SubscriptionState.CONFIRMED,
        created_at=0,
        attributes={"DeliveryPolicy": json.dumps(own)},
        token="",
        token_expires_at=0,
    )
    effective = json.loads(effective_subscription_policy(topic, subscription))
    assert effective["healthyRetryPolicy"]["numRetries"] == 1
    assert effective["throttlePolicy"] == {"maxReceivesPerSecond": 7}
    of_topic = json.loads(effective_topic_policy(topic))["http"]
    assert of_topic["defaultHealthyRetryPolicy"]["numRetries"] == 3
    assert of_topic["defaultThrottlePolicy"] == {"maxReceivesPerSecond": 7}
