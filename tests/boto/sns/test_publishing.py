"""Publishing: signed or raw, one or many, as large as may be, and what is refused."""

import json
import uuid
from typing import Any

import pytest

from support.receiver import Receiver
from support.sns import ACCOUNT, assert_signed, code_of, confirmed, message_of


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


def test_words_of_refused_messages(sns: Any, topic: str) -> None:
    """As a public emulator's tests have recorded them from AWS."""

    def batch(*ids: str) -> dict[str, Any]:
        return {"PublishBatchRequestEntries": [{"Id": one, "Message": "m"} for one in ids]}

    structured = {"MessageStructure": "json"}
    no_default = "Message Structure - No default entry in JSON message body"
    empty = {"attr1": {"DataType": "Binary", "BinaryValue": b""}}
    for call, params, message in (
        (sns.publish, {"Message": "no json", **structured},
         "Invalid parameter: Message Structure - JSON message body failed to parse"),
        (sns.publish, {"Message": '{"sqs": "m"}', **structured},
         f"Invalid parameter: {no_default}"),
        (sns.publish, {"Message": '{"default": 1}', **structured},
         f"Invalid parameter: {no_default}"),
        (sns.publish, {"Message": "m", "MessageDeduplicationId": "d"},
         "Invalid parameter: MessageDeduplicationId Reason: The request includes "
         "MessageDeduplicationId parameter that is not valid for this topic type"),
        (sns.publish, {"Message": "m", "MessageAttributes": empty},
         "The message attribute 'attr1' must contain non-empty message attribute value for message "
         "attribute type 'Binary'."),
        (sns.publish_batch, batch(*map(str, range(11))),
         "The batch request contains more entries than permissible."),
        (sns.publish_batch, batch("a", "a"),
         "Two or more batch entries in the request have the same Id."),
        (sns.publish_batch, batch("a.b"),
         "The Id of a batch entry in the batch request contains an impermissible character: a.b"),
        (sns.publish_batch, batch("a" * 81),
         f"The Id of a batch entry in the batch request is too long: {'a' * 81}"),
    ):  # fmt: skip
        assert message_of(call, TopicArn=topic, **params) == message


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
