"""Subscriptions: asked for, confirmed, ended, filtered, and what is refused."""

import json
import uuid
from typing import Any

import pytest

from support.plain_http import ask
from support.receiver import Receiver
from support.sns import (
    ACCOUNT,
    assert_signed,
    attributes_of,
    code_of,
    confirmed,
    message_of,
    refusal,
)


def test_handshake_notification_and_farewell(
    sns: Any, receiver: Receiver, topic: str, path: str
) -> None:
    url = receiver.url(path)
    asked = sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=url)
    assert asked["SubscriptionArn"] == "pending confirmation"
    (listed,) = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert listed == {
        "SubscriptionArn": "PendingConfirmation",
        "Owner": ACCOUNT,
        "Protocol": "http",
        "Endpoint": url,
        "TopicArn": topic,
    }
    sns.publish(TopicArn=topic, Message="too early")
    (post,) = receiver.wait_for(path)
    confirmation = post.json
    assert post.headers["content-type"] == "text/plain; charset=UTF-8"
    assert post.headers["user-agent"] == "Amazon Simple Notification Service Agent"
    assert post.kind == confirmation["Type"] == "SubscriptionConfirmation"
    assert post.headers["x-amz-sns-message-id"] == confirmation["MessageId"]
    assert post.headers["x-amz-sns-topic-arn"] == confirmation["TopicArn"] == topic
    assert "x-amz-sns-subscription-arn" not in post.headers
    assert topic in confirmation["Message"].splitlines()[0]
    signed = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    assert_signed(confirmation, *signed)

    answer = receiver.confirm(path)
    assert "<ConfirmSubscriptionResponse" in answer
    arn = answer.partition("<SubscriptionArn>")[2].partition("<")[0]
    assert arn in receiver.confirm(path)  # Twice is once.
    assert attributes_of(sns, arn)["ConfirmationWasAuthenticated"] == "false"

    published = sns.publish(TopicArn=topic, Message='{"ü": 1}', Subject="About")
    (post,) = receiver.wait_for(path, "Notification")
    notification = post.json
    assert post.headers["x-amz-sns-subscription-arn"] == arn
    assert list(notification) == [
        "Type", "MessageId", "TopicArn", "Subject", "Message", "Timestamp",
        "SignatureVersion", "Signature", "SigningCertURL", "UnsubscribeURL",
    ]  # fmt: skip
    assert notification["MessageId"] == published["MessageId"]
    assert (notification["Message"], notification["Subject"]) == ('{"ü": 1}', "About")
    signed = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
    assert_signed(notification, *signed)

    assert b"UnsubscribeResponse" in ask(notification["UnsubscribeURL"]).body
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    (post,) = receiver.wait_for(path, "UnsubscribeConfirmation")
    assert post.headers["x-amz-sns-subscription-arn"] == arn
    told = sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert told["SubscriptionsDeleted"] == "1"
    assert ask(post.json["SubscribeURL"]).status == 200
    (listed,) = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert listed["SubscriptionArn"] == arn


def test_confirmed_by_the_owner(sns: Any, receiver: Receiver, topic: str, path: str) -> None:
    url = receiver.url(path)
    arn = sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=url, ReturnSubscriptionArn=True)[
        "SubscriptionArn"
    ]
    assert arn.startswith(topic + ":")
    assert attributes_of(sns, arn)["PendingConfirmation"] == "true"
    (post,) = receiver.wait_for(path)
    wrong = {"TopicArn": topic, "Token": "0" * 64}
    assert code_of(sns.confirm_subscription, **wrong) == ("InvalidParameter", 400)
    elsewhere = {"TopicArn": topic + "x", "Token": post.json["Token"]}
    assert code_of(sns.confirm_subscription, **elsewhere) == ("InvalidParameter", 400)
    confirmed_arn = sns.confirm_subscription(
        TopicArn=topic, Token=post.json["Token"], AuthenticateOnUnsubscribe="true"
    )["SubscriptionArn"]
    assert confirmed_arn == arn
    attributes = attributes_of(sns, arn)
    assert attributes["PendingConfirmation"] == "false"
    assert attributes["ConfirmationWasAuthenticated"] == "true"
    same = sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=url)
    assert same["SubscriptionArn"] == arn
    sns.publish(TopicArn=topic, Message="x")
    (post,) = receiver.wait_for(path, "Notification")
    assert refusal(post.json["UnsubscribeURL"]) == (403, "AuthorizationError")
    sns.unsubscribe(SubscriptionArn=arn)
    sns.unsubscribe(SubscriptionArn=arn)
    gone = {"SubscriptionArn": arn}
    assert code_of(sns.get_subscription_attributes, **gone) == ("NotFound", 404)


def test_queues_are_confirmed_at_once(sns: Any, sqs: Any, topic: str) -> None:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    queue = arn["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
    value = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    sent = sns.publish(TopicArn=topic, Message="m", MessageAttributes={"b": value})
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    envelope = json.loads(message["Body"])
    assert envelope["MessageId"] == sent["MessageId"]
    assert envelope["MessageAttributes"] == {"b": {"Type": "Binary", "Value": "AP8="}}
    assert_signed(envelope, "Message", "MessageId", "Timestamp", "TopicArn", "Type")


def test_filters_on_the_body_of_sagemaker_s_notices(sns: Any, sqs: Any, topic: str) -> None:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    queue = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"
    policy = json.dumps(
        {"invocationStatus": ["Failed"], "requestParameters": {"endpointName": ["demo"]}}
    )
    arn = sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=queue,
        Attributes={
            "FilterPolicy": policy,
            "FilterPolicyScope": "MessageBody",
            "RawMessageDelivery": "true",
        },
    )["SubscriptionArn"]
    for state, endpoint in (("Completed", "demo"), ("Failed", "other"), ("Failed", "demo")):
        notice = {"invocationStatus": state, "requestParameters": {"endpointName": endpoint}}
        sns.publish(TopicArn=topic, Message=json.dumps(notice))
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [json.loads(one["Body"])["invocationStatus"] for one in messages] == ["Failed"]
    told = attributes_of(sns, arn)
    assert (told["FilterPolicy"], told["FilterPolicyScope"]) == (policy, "MessageBody")
    # The same policy cannot be read as one on attributes.
    scope = {"AttributeName": "FilterPolicyScope", "AttributeValue": "MessageAttributes"}
    refused = code_of(sns.set_subscription_attributes, SubscriptionArn=arn, **scope)
    assert refused == ("InvalidParameter", 400)
    off = {"AttributeName": "FilterPolicy", "AttributeValue": ""}
    sns.set_subscription_attributes(SubscriptionArn=arn, **off)
    sns.publish(TopicArn=topic, Message="no JSON at all")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "no JSON at all"


@pytest.mark.parametrize(
    "params",
    [
        {"Protocol": "sms", "Endpoint": "+15550100"},
        {"Protocol": "lambda", "Endpoint": "arn:aws:lambda:us-east-1:000000000000:function:f"},
        {"Protocol": "application", "Endpoint": "arn:x"},
        {"Protocol": "firehose", "Endpoint": "arn:x"},
        {"Protocol": "smoke-signals", "Endpoint": "hill"},
        {"Protocol": "http", "Endpoint": "https://example.com/"},
        {"Protocol": "https", "Endpoint": "http://example.com/"},
        {"Protocol": "http", "Endpoint": "http://"},
        {"Protocol": "http", "Endpoint": "http://host:99999/"},
        {"Protocol": "http", "Endpoint": "http://[::1/"},
        {"Protocol": "http", "Endpoint": "http://host/a b"},
        {"Protocol": "http", "Endpoint": "http://host/\r\nx"},
        {"Protocol": "http", "Endpoint": "http://host/" + "x" * 2048},
        {"Protocol": "http"},
        {"Protocol": "sqs", "Endpoint": "http://host/queue"},
        {"Protocol": "sqs", "Endpoint": "arn:aws:sqs:us-east-1:999999999999:queue"},
        {"Protocol": "sqs", "Endpoint": f"arn:aws:sqs:us-east-1:{ACCOUNT}:queue.fifo"},
        {"Protocol": "email", "Endpoint": "nobody"},
        {"Protocol": "email", "Endpoint": "a@example.com"},  # no smtp_host
        {"Protocol": "webhook", "Endpoint": "ftp://host/"},
        {
            "Protocol": "webhook",
            "Endpoint": "http://host/",
            "Attributes": {"WebhookSecret": "whsec_short"},
        },
    ],
)
def test_subscriptions_that_cannot_be(sns: Any, topic: str, params: dict[str, Any]) -> None:
    assert code_of(sns.subscribe, TopicArn=topic, **params) == ("InvalidParameter", 400)
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_words_of_refused_subscriptions(sns: Any, topic: str) -> None:
    """As a public emulator's tests have recorded them from AWS."""
    web = {"Protocol": "http", "Endpoint": "http://127.0.0.1:9/"}
    complex_policy = json.dumps({"a": list(range(151))})
    for params, message in (
        ({"TopicArn": topic + "x", "Protocol": "sqs", "Endpoint": "x"}, "Topic does not exist"),
        ({"TopicArn": topic + "x", "Protocol": "smoke"}, "Topic does not exist"),
        ({"TopicArn": "topic", **web},
         "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1"),
        ({"Protocol": "sqs", "Endpoint": "x"}, "Invalid parameter: SQS endpoint ARN"),
        ({"Protocol": "sqs", "Endpoint": f"arn:aws:sqs:us-east-1:{ACCOUNT}:q.fifo"},
         "Invalid parameter: Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be "
         "subscribed to standard SNS topics"),
        ({**web, "Attributes": {"FilterPolicy": complex_policy}},
         "Invalid parameter: Attributes Reason: FilterPolicy: Filter policy is too complex"),
        ({**web, "Attributes": {"RawMessageDelivery": "wrongvalue"}},
         "Invalid parameter: Attributes Reason: RawMessageDelivery: Invalid value [wrongvalue]. "
         "Must be true or false."),
    ):  # fmt: skip
        assert message_of(sns.subscribe, **{"TopicArn": topic, **params}) == message
    for arn, count in (("unknown", 1), ("arn:aws:sns:us-east-1:t", 5)):
        assert message_of(sns.unsubscribe, SubscriptionArn=arn) == (
            "Invalid parameter: SubscriptionArn Reason: An ARN must have at least 6 elements, not "
            f"{count}"
        )
    arn = sns.subscribe(TopicArn=topic, ReturnSubscriptionArn=True, **web)["SubscriptionArn"]
    for name, value, message in (
        ("FilterPolicy", complex_policy, "FilterPolicy: Filter policy is too complex"),
        ("FilterPolicyScope", "RandomValue",
         "FilterPolicyScope: Invalid value [RandomValue]. Please use either MessageBody or "
         "MessageAttributes"),
        ("RawMessageDelivery", "test-ValUe",
         "RawMessageDelivery: Invalid value [test-ValUe]. Must be true or false."),
    ):  # fmt: skip
        change = {"AttributeName": name, "AttributeValue": value}
        assert message_of(sns.set_subscription_attributes, SubscriptionArn=arn, **change) == (
            f"Invalid parameter: {message}"
        )


@pytest.mark.parametrize(
    "attributes",
    [
        {"NoSuch": "x"},
        {"FilterPolicy": '{"a": "b"}'},
        {"FilterPolicy": '{"a": {"b": ["c"]}}'},
        {"FilterPolicyScope": "Everything"},
        {"RawMessageDelivery": "yes"},
        {"RedrivePolicy": "{}"},
        {"RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sns:us-east-1:000000000000:t"}'},
        {"DeliveryPolicy": '{"healthyRetryPolicy": {"numRetries": 101}}'},
        {"WebhookSecret": "whsec_" + "A" * 44},
    ],
)
def test_attributes_that_cannot_be(sns: Any, topic: str, attributes: dict[str, str]) -> None:
    params = {"TopicArn": topic, "Protocol": "http", "Endpoint": "http://127.0.0.1:9/"}
    refused = code_of(sns.subscribe, Attributes=attributes, **params)
    assert refused == ("InvalidParameter", 400)


def test_what_a_subscription_has_already(
    sns: Any, receiver: Receiver, topic: str, path: str
) -> None:
    arn = confirmed(sns, receiver, topic, path, RawMessageDelivery="true")
    where = {"TopicArn": topic, "Protocol": "http", "Endpoint": receiver.url(path)}
    assert sns.subscribe(**where)["SubscriptionArn"] == arn
    other = {"RawMessageDelivery": "false"}
    assert code_of(sns.subscribe, Attributes=other, **where) == ("InvalidParameter", 400)
