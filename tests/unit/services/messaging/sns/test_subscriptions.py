"""Subscriptions: endpoints of each protocol, who has to confirm, and the limits."""

import dataclasses
from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import subscriptions
from sagehen.services.messaging.sns.confirmation import confirm_subscription, unsubscribe
from sagehen.services.messaging.sns.subscription_store import get
from sagehen.services.messaging.sns.topics import create_topic
from sagehen.wire.errors import AwsError

QUEUE = "arn:aws:sqs:us-east-1:000000000000:q"


@pytest.fixture
def topic(call: RequestContext) -> str:
    return str(create_topic(call, {"Name": "t"})["TopicArn"])


def subscribe(
    call: RequestContext, topic: str, protocol: str, endpoint: str, **attributes: str
) -> str:
    params = {
        "TopicArn": topic,
        "Protocol": protocol,
        "Endpoint": endpoint,
        "Attributes": attributes,
        "ReturnSubscriptionArn": True,
    }
    return str(subscriptions.subscribe(call, params)["SubscriptionArn"])


def listed(call: RequestContext) -> list[dict[str, str]]:
    found: list[dict[str, str]] = subscriptions.list_subscriptions(call, {})["Subscriptions"]
    return found


@pytest.mark.parametrize(
    ("protocol", "endpoint", "message"),
    [
        ("sms", "1", "does not deliver by sms"),
        ("pigeon", "1", "does not support this protocol string: pigeon"),
        ("http", "https://h/", "begins with http://"),
        ("https", "http://h/", "begins with https://"),
        ("webhook", "ftp://h/", "begins with http:// or https://"),
        ("http", "http://h:0/", "must match the specified protocol"),
        ("http", "http://h/ x", "must match the specified protocol"),
        ("http", "http://h/" + "x" * 2048, "at most 2048 characters"),
        ("email", "nobody", "Email address"),
        ("sqs", f"{QUEUE}.fifo", "FIFO SQS Queues"),
        ("sqs", "arn:aws:sqs:us-east-1:111111111111:q", "SQS endpoint ARN"),
    ],
)
def test_endpoints_that_are_refused(
    call: RequestContext, topic: str, protocol: str, endpoint: str, message: str
) -> None:
    with pytest.raises(AwsError, match=message):
        subscribe(call, topic, protocol, endpoint)


def test_mail_needs_a_mail_server(call: RequestContext, topic: str) -> None:
    settings = call.settings.model_copy(update={"smtp_host": None})
    with pytest.raises(AwsError, match="smtp_host"):
        subscribe(dataclasses.replace(call, settings=settings), topic, "email", "a@b")


@pytest.mark.parametrize(
    ("protocol", "endpoint", "asks"),
    [
        ("http", "http://h/", True),
        ("email", "a@b", True),
        ("sqs", QUEUE, False),
        ("webhook", "https://h/", False),
    ],
)
def test_who_is_asked_to_confirm(
    call: RequestContext, topic: str, protocol: str, endpoint: str, asks: bool
) -> None:
    arn = subscribe(call, topic, protocol, endpoint)
    with call.database.read() as connection:
        due = deliveries.due(connection, arn, 1e9, 10)
    assert [delivery.kind for delivery in due] == ["SubscriptionConfirmation"] * asks
    (shown,) = listed(call)
    assert shown["SubscriptionArn"] == ("PendingConfirmation" if asks else arn)


def test_subscribing_again_finds_the_same(call: RequestContext, topic: str) -> None:
    arn = subscribe(call, topic, "webhook", "https://h/", FilterPolicy='{"a": ["b"]}')
    assert subscribe(call, topic, "webhook", "https://h/") == arn
    with pytest.raises(AwsError, match="already exists with different attributes"):
        subscribe(call, topic, "webhook", "https://h/", FilterPolicy='{"a": ["c"]}')
    unsubscribe(call, {"SubscriptionArn": arn})
    assert listed(call) == []
    assert subscribe(call, topic, "webhook", "https://h/") != arn


def test_a_webhook_keeps_its_secret_when_attributes_change(
    call: RequestContext, topic: str
) -> None:
    arn = subscribe(call, topic, "webhook", "https://h/")

    def change(name: str, value: str) -> Any:
        params = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": value}
        subscriptions.set_subscription_attributes(call, params)
        with call.database.read() as connection:
            record = get(connection, arn)
        assert record is not None
        return record.attributes

    secret = change("FilterPolicy", '{"a": ["b"]}')["WebhookSecret"]
    assert change("FilterPolicy", "") == {"WebhookSecret": secret}
    assert change("WebhookSecret", "") == {"WebhookSecret": secret}


def test_quotas(call: RequestContext, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_FILTER_POLICIES", 1)
    subscribe(call, topic, "webhook", "https://a/", FilterPolicy='{"a": ["b"]}')
    with pytest.raises(AwsError, match="at most 1 subscriptions with a filter policy"):
        subscribe(call, topic, "webhook", "https://b/", FilterPolicy='{"a": ["b"]}')
    settings = call.settings.model_copy(update={"max_topic_subscriptions": 1})
    with pytest.raises(AwsError, match="max_topic_subscriptions"):
        subscribe(dataclasses.replace(call, settings=settings), topic, "webhook", "https://b/")


def test_attributes_have_their_effective_policy(call: RequestContext, topic: str) -> None:
    arn = subscribe(call, topic, "http", "http://h/", FilterPolicy='{"a": ["b"]}')
    answer = subscriptions.get_subscription_attributes(call, {"SubscriptionArn": arn})
    attributes = answer["Attributes"]
    assert attributes["PendingConfirmation"] == "true"
    assert attributes["FilterPolicyScope"] == "MessageAttributes"
    assert '"numRetries":3' in attributes["EffectiveDeliveryPolicy"]
    with pytest.raises(AwsError, match="Subscription does not exist"):
        subscriptions.get_subscription_attributes(call, {"SubscriptionArn": f"{arn}x"})


@pytest.mark.parametrize(
    ("token", "words"), [("randomtoken", "Invalid token"), ("0" * 64, "Invalid parameter: Token")]
)
def test_tokens_that_confirm_nothing(
    call: RequestContext, topic: str, token: str, words: str
) -> None:
    with pytest.raises(AwsError) as caught:
        confirm_subscription(call, {"TopicArn": topic, "Token": token})
    assert (caught.value.code, caught.value.message) == ("InvalidParameter", words)
