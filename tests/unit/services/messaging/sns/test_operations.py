"""Publish and PublishBatch: what is refused, and what is on its way when they return."""

from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns.operations import MAX_MESSAGE_BYTES, publish, publish_batch
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.messaging.sns.subscriptions import subscribe
from sagehen.services.messaging.sns.topics import create_topic
from sagehen.wire.errors import AwsError


@pytest.fixture
def topic(call: RequestContext) -> str:
    return str(create_topic(call, {"Name": "t"})["TopicArn"])


@pytest.fixture
def address(call: RequestContext, topic: str) -> str:
    """The ARN of a subscription."""
    params = {"TopicArn": topic, "Protocol": "webhook", "Endpoint": "https://h/"}
    return str(subscribe(call, params)["SubscriptionArn"])


def sent(call: RequestContext, address: str) -> list[Notice]:
    with call.database.read() as connection:
        due = deliveries.due(connection, address, 1e9, 10)
    return [delivery.read(Notice) for delivery in due]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"Message": ""}, "Empty message"),
        ({"Message": "\0"}, "XML 1.0"),
        ({"Message": "m", "Subject": "x" * 101}, "up to 100 ASCII characters"),
        ({"Message": "m", "Subject": " x"}, "does not begin with a space"),
        ({"Message": "ü" * (MAX_MESSAGE_BYTES // 2 + 1)}, "Message too long"),
        ({"Message": "m", "MessageStructure": "xml"}, "may be json only"),
        ({"Message": "m", "MessageStructure": "json"}, "JSON message body failed to parse"),
        ({"Message": "{}", "MessageStructure": "json"}, "No default entry"),
        ({"Message": "m", "MessageDeduplicationId": "x"}, "not valid for this topic type"),
        ({"Message": "m", "MessageAttributes": {"a": {"DataType": "X"}}}, "invalid message attr"),
        ({"Message": "m", "PhoneNumber": "1"}, "does not deliver by sms"),
    ],
)
def test_messages_that_are_refused(
    call: RequestContext, topic: str, address: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(AwsError, match=message):
        publish(call, {"TopicArn": topic, **params})
    assert sent(call, address) == []


def test_a_message_is_on_its_way(call: RequestContext, topic: str, address: str) -> None:
    message_id = publish(call, {"TargetArn": topic, "Message": "m", "Subject": "s"})["MessageId"]
    (notice,) = sent(call, address)
    assert (notice.message_id, notice.message, notice.subject) == (message_id, "m", "s")
    with pytest.raises(AwsError, match="Topic does not exist"):
        publish(call, {"TopicArn": f"{topic}x", "Message": "m"})
    with pytest.raises(AwsError, match="TopicArn or TargetArn"):
        publish(call, {"Message": "m"})


def test_bad_entries_of_a_batch_hold_up_no_others(
    call: RequestContext, topic: str, address: str
) -> None:
    entries = [{"Id": "a", "Message": "1"}, {"Id": "b", "Message": ""}, {"Id": "c", "Message": "3"}]
    answer = publish_batch(call, {"TopicArn": topic, "PublishBatchRequestEntries": entries})
    assert [entry["Id"] for entry in answer["Successful"]] == ["a", "c"]
    assert [entry["Id"] for entry in answer["Failed"]] == ["b"]
    assert sorted(notice.message for notice in sent(call, address)) == ["1", "3"]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(number), "Message": "m"} for number in range(11)], "TooManyEntriesInBatchRe"),
        ([{"Id": "a", "Message": "m"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "Message": "m"}], "InvalidBatchEntryId"),
        (
            [{"Id": name, "Message": "x" * (MAX_MESSAGE_BYTES // 2 + 1)} for name in "ab"],
            "BatchRequestTooLong",
        ),
    ],
)
def test_batches_that_are_refused(
    call: RequestContext, topic: str, address: str, entries: list[dict[str, str]], code: str
) -> None:
    with pytest.raises(AwsError) as caught:
        publish_batch(call, {"TopicArn": topic, "PublishBatchRequestEntries": entries})
    assert caught.value.code.startswith(code)
    assert sent(call, address) == []
