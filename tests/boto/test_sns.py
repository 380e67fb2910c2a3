"""SNS by a real boto3 client: topics, subscriptions, publishing, and every refusal."""

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.plain_http import ask
from support.receiver import Receiver
from support.server import Server, eventually, run_to_its_end

ACCOUNT = "000000000000"
PREFIX = f"arn:aws:sns:us-east-1:{ACCOUNT}:"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def sns(server: Server) -> Any:
    return server.client("sns")


@pytest.fixture(scope="module")
def sqs(server: Server) -> Any:
    return server.client("sqs")


@pytest.fixture
def topic(sns: Any) -> Iterator[str]:
    arn = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    yield arn
    sns.delete_topic(TopicArn=arn)


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex[:8]}"


def code_of(call: Callable[..., Any], **params: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer = caught.value.response
    assert answer["Error"]["Message"]
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def refusal(url: str, data: bytes | None = None) -> tuple[int, str]:
    """Status and code of what is asked without a signature."""
    answer = ask(url, data)
    return answer.status, answer.body.decode().partition("<Code>")[2].partition("<")[0]


def assert_signed(posted: dict[str, Any], *keys: str) -> None:
    """As a receiver does it: fetch the certificate, put together what is signed, verify."""
    certificate = x509.load_pem_x509_certificate(ask(posted["SigningCertURL"]).body)
    signed = "".join(f"{key}\n{posted[key]}\n" for key in keys if key in posted)
    kind = {"1": hashes.SHA1(), "2": hashes.SHA256()}[posted["SignatureVersion"]]
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    signature = base64.b64decode(posted["Signature"])
    key.verify(signature, signed.encode(), padding.PKCS1v15(), kind)


def confirmed(sns: Any, receiver: Receiver, topic: str, path: str, **attributes: str) -> str:
    sns.subscribe(
        TopicArn=topic, Protocol="http", Endpoint=receiver.url(path), Attributes=attributes
    )
    answer = receiver.confirm(path)
    return answer.partition("<SubscriptionArn>")[2].partition("<")[0]


def attributes_of(sns: Any, arn: str) -> dict[str, str]:
    return sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]


def test_topics(sns: Any) -> None:
    name = f"T_{uuid.uuid4().hex}"
    arn = sns.create_topic(Name=name, Attributes={"DisplayName": "d"})["TopicArn"]
    assert arn == PREFIX + name
    assert sns.create_topic(Name=name)["TopicArn"] == arn
    same = sns.create_topic(Name=name, Attributes={"DisplayName": "d"})
    assert same["TopicArn"] == arn
    other = {"DisplayName": "other"}
    assert code_of(sns.create_topic, Name=name, Attributes=other) == ("InvalidParameter", 400)
    sns.set_topic_attributes(TopicArn=arn, AttributeName="SignatureVersion", AttributeValue="2")
    told = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert told["TopicArn"] == arn
    assert told["Owner"] == ACCOUNT
    assert (told["DisplayName"], told["SignatureVersion"]) == ("d", "2")
    assert json.loads(told["EffectiveDeliveryPolicy"])["http"]["defaultHealthyRetryPolicy"] == {
        "minDelayTarget": 20,
        "maxDelayTarget": 20,
        "numRetries": 3,
        "numMaxDelayRetries": 0,
        "numNoDelayRetries": 0,
        "numMinDelayRetries": 0,
        "backoffFunction": "linear",
    }
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="")
    assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == ""
    sns.delete_topic(TopicArn=arn)
    sns.delete_topic(TopicArn=arn)
    assert code_of(sns.get_topic_attributes, TopicArn=arn) == ("NotFound", 404)


def test_tags(sns: Any, topic: str) -> None:
    sns.tag_resource(
        ResourceArn=topic, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]
    )
    sns.untag_resource(ResourceArn=topic, TagKeys=["b", "c"])
    assert sns.list_tags_for_resource(ResourceArn=topic)["Tags"] == [{"Key": "a", "Value": "1"}]
    gone = {"ResourceArn": topic + "x"}
    assert code_of(sns.list_tags_for_resource, **gone) == ("ResourceNotFound", 404)


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


def test_only_links_need_no_signature(server: Server, topic: str) -> None:
    for query in ("Action=ListTopics", f"Action=DeleteTopic&TopicArn={topic}", "Action=Publish"):
        assert refusal(f"{server.url}/?{query}")[0] == 403
    assert refusal(f"{server.url}/", data=b"Action=ConfirmSubscription")[0] == 403


def test_signature_version_2(sns: Any, receiver: Receiver, topic: str, path: str) -> None:
    confirmed(sns, receiver, topic, path)
    sns.set_topic_attributes(TopicArn=topic, AttributeName="SignatureVersion", AttributeValue="2")
    sns.publish(TopicArn=topic, Message="x")
    (post,) = receiver.wait_for(path, "Notification")
    assert post.json["SignatureVersion"] == "2"
    assert "Subject" not in post.json
    assert_signed(post.json, "Message", "MessageId", "Timestamp", "TopicArn", "Type")


def test_raw_messages_with_a_content_type(
    sns: Any, receiver: Receiver, topic: str, path: str
) -> None:
    policy = json.dumps({"requestPolicy": {"headerContentType": "application/json"}})
    confirmed(sns, receiver, topic, path, RawMessageDelivery="true", DeliveryPolicy=policy)
    sns.publish(TopicArn=topic, Message='{"a":1}')
    (post,) = receiver.wait_for(path, "Notification")
    assert post.body == b'{"a":1}'
    assert post.headers["x-amz-sns-rawdelivery"] == "true"
    assert post.headers["content-type"] == "application/json"


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


def test_batches(sns: Any, sqs: Any, topic: str) -> None:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    queue = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
    entries = [
        {"Id": "good", "Message": "m", "Subject": "s"},
        {"Id": "bad", "Message": "m", "Subject": "two\nlines"},
        {
            "Id": "json",
            "Message": '{"default": "d", "sqs": "for queues"}',
            "MessageStructure": "json",
        },
    ]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good", "json"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"]) == ("bad", "InvalidParameter")
    assert failed["SenderFault"]
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    texts = {json.loads(one["Body"])["Message"] for one in received}
    assert texts == {"m", "for queues"}


BATCHES = [
    ([], "EmptyBatchRequest"),
    ([{"Id": "a", "Message": "m"}] * 2, "BatchEntryIdsNotDistinct"),
    ([{"Id": str(n), "Message": "m"} for n in range(11)], "TooManyEntriesInBatchRequest"),
    ([{"Id": "a b", "Message": "m"}], "InvalidBatchEntryId"),
    ([{"Id": str(n), "Message": "m" * 200_000} for n in range(2)], "BatchRequestTooLong"),
]


@pytest.mark.parametrize(("entries", "code"), BATCHES)
def test_bad_batches(sns: Any, topic: str, entries: list[dict[str, str]], code: str) -> None:
    params = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
    assert code_of(sns.publish_batch, **params) == (code, 400)


@pytest.mark.parametrize(
    "params",
    [
        {"Name": "a b"},
        {"Name": ""},
        {"Name": "x" * 257},
        {"Name": "topic.fifo", "Attributes": {"FifoTopic": "true"}},
        {"Name": "topic", "Attributes": {"FifoTopic": "true"}},
        {"Name": "topic", "Attributes": {"NoSuch": "x"}},
        {"Name": "topic", "Attributes": {"DisplayName": "x" * 101}},
        {"Name": "topic", "Attributes": {"SignatureVersion": "3"}},
        {"Name": "topic", "Attributes": {"Policy": "[]"}},
        {"Name": "topic", "Attributes": {"DeliveryPolicy": '{"http": {"x": 1}}'}},
        {"Name": "topic", "Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
    ],
)
def test_topics_that_cannot_be(sns: Any, params: dict[str, Any]) -> None:
    assert code_of(sns.create_topic, **params) == ("InvalidParameter", 400)


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


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"Message": ""}, "InvalidParameter"),
        ({"Message": "x" * 262_145}, "InvalidParameter"),
        ({"Message": "bad \x00"}, "InvalidParameter"),
        ({"Message": "m", "Subject": "x" * 101}, "InvalidParameter"),
        ({"Message": "m", "Subject": "two\nlines"}, "InvalidParameter"),
        ({"Message": "m", "Subject": "ü"}, "InvalidParameter"),
        ({"Message": "m", "MessageStructure": "xml"}, "InvalidParameter"),
        ({"Message": '{"sqs": "no default"}', "MessageStructure": "json"}, "InvalidParameter"),
        ({"Message": "m", "MessageDeduplicationId": "d"}, "InvalidParameter"),
        ({"Message": "m", "MessageAttributes": {"AWS.x": {}}}, "ParameterValueInvalid"),
        ({"Message": "m", "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "x"}}},
         "ParameterValueInvalid"),
        ({"Message": "m", "MessageAttributes": {"n": {"DataType": "Odd", "StringValue": "x"}}},
         "ParameterValueInvalid"),
        ({"Message": "m", "MessageAttributes": {"n": {"DataType": "String", "StringValue": ""}}},
         "ParameterValueInvalid"),
    ],
)  # fmt: skip
def test_messages_that_cannot_be(sns: Any, topic: str, params: dict[str, Any], code: str) -> None:
    for attribute in params.get("MessageAttributes", {}).values():
        attribute.setdefault("DataType", "String")
    assert code_of(sns.publish, TopicArn=topic, **params) == (code, 400)


def test_the_largest_message(sns: Any, sqs: Any, topic: str) -> None:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    queue = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
    sns.publish(TopicArn=topic, Message="ü" * 131_072)
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert json.loads(message["Body"])["Message"] == "ü" * 131_072


def test_nowhere_to_publish(sns: Any, topic: str) -> None:
    assert code_of(sns.publish, TopicArn=topic + "x", Message="m") == ("NotFound", 404)
    assert code_of(sns.publish, TopicArn="topic", Message="m") == ("InvalidParameter", 400)
    assert code_of(sns.publish, PhoneNumber="+15550100", Message="m") == ("InvalidParameter", 400)
    assert code_of(sns.publish, Message="m") == ("InvalidParameter", 400)
    where = {"TopicArn": topic + "x", "Protocol": "http", "Endpoint": "http://127.0.0.1:9/"}
    assert code_of(sns.subscribe, **where) == ("NotFound", 404)
    assert code_of(sns.list_topics, NextToken="nonsense") == ("InvalidParameter", 400)


def test_what_a_subscription_has_already(
    sns: Any, receiver: Receiver, topic: str, path: str
) -> None:
    arn = confirmed(sns, receiver, topic, path, RawMessageDelivery="true")
    where = {"TopicArn": topic, "Protocol": "http", "Endpoint": receiver.url(path)}
    assert sns.subscribe(**where)["SubscriptionArn"] == arn
    other = {"RawMessageDelivery": "false"}
    assert code_of(sns.subscribe, Attributes=other, **where) == ("InvalidParameter", 400)


def test_a_deleted_topic_takes_its_subscriptions_along(
    sns: Any, receiver: Receiver, path: str
) -> None:
    topic = sns.create_topic(Name=f"t-{uuid.uuid4().hex}")["TopicArn"]
    arn = confirmed(sns, receiver, topic, path)
    sns.delete_topic(TopicArn=topic)
    assert code_of(sns.get_subscription_attributes, SubscriptionArn=arn) == ("NotFound", 404)
    listed = [one["SubscriptionArn"] for one in sns.list_subscriptions()["Subscriptions"]]
    assert arn not in listed


def test_what_is_not_built_is_refused_by_name(sns: Any, topic: str) -> None:
    refused = code_of(
        sns.add_permission,
        TopicArn=topic,
        Label="l",
        AWSAccountId=[ACCOUNT],
        ActionName=["Publish"],
    )
    assert refused == ("UnsupportedOperation", 400)


def test_the_key_is_its_owner_s_only(server: Server) -> None:
    key = server.home / "message-key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    eventually(lambda: b"PRIVATE KEY" in key.read_bytes())


def test_from_topic_to_queue_by_the_command_line(
    server: Server, sns: Any, sqs: Any, topic: str
) -> None:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    queue = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes=raw)
    aws = str(Path(sys.executable).with_name("aws"))
    publish = [aws, "sns", "publish", "--topic-arn", topic, "--message", "by hand"]
    published = json.loads(run_to_its_end(publish, server.env))
    assert published["MessageId"]
    # Its sqs has an address of its own, whatever AWS_ENDPOINT_URL says.
    receive = [aws, "--endpoint-url", server.url, "sqs", "receive-message", "--queue-url", url]
    received = json.loads(run_to_its_end(receive, server.env))
    assert received["Messages"][0]["Body"] == "by hand"
