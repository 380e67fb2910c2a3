"""SendMessage and its batch: digests, sizes, and entries that fail alone."""

import hashlib
from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sqs.queues import create_queue, get_queue_attributes
from sagehen.services.messaging.sqs.sending import (
    MAX_MESSAGE_BYTES,
    md5_of_attributes,
    md5_of_body,
    send_message,
    send_message_batch,
)
from sagehen.wire.errors import AwsError


@pytest.fixture
def url(call: RequestContext) -> str:
    attributes = {"MaximumMessageSize": "2000"}
    return str(create_queue(call, {"QueueName": "q", "Attributes": attributes})["QueueUrl"])


def waiting(call: RequestContext, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    answer = get_queue_attributes(call, {"QueueUrl": url, "AttributeNames": names})
    return sum(int(count) for count in answer["Attributes"].values())


def test_digests_are_those_that_clients_check() -> None:
    assert md5_of_body("hello") == "5d41402abc4b2a76b9719d911017c592"
    string = {"a": MessageAttribute("String", "b")}
    # Lengths in four bytes, the transport type in one.
    parts = b"\0\0\0\x01a\0\0\0\x06String\x01\0\0\0\x01b"
    assert md5_of_attributes(string) == hashlib.md5(parts, usedforsecurity=False).hexdigest()
    assert md5_of_attributes(string) != md5_of_attributes(
        {"a": MessageAttribute("Binary", None, b"b")}
    )


async def test_a_message_is_in_its_queue(call: RequestContext, url: str) -> None:
    answer = await send_message(call, {"QueueUrl": url, "MessageBody": "hello"})
    assert answer["MD5OfMessageBody"] == md5_of_body("hello")
    assert "MD5OfMessageAttributes" not in answer
    assert waiting(call, url) == 1


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\0"}, "InvalidMessageContents"),
        ({"MessageBody": "x" * 2001}, "InvalidParameterValue"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        (
            {"MessageBody": "x", "MessageAttributes": {"a": {"DataType": "String"}}},
            "InvalidParameterValue",
        ),
        (
            {
                "MessageBody": "x",
                "MessageAttributes": {
                    str(number): {"DataType": "String", "StringValue": "v"} for number in range(11)
                },
            },
            "InvalidParameterValue",
        ),
    ],
)
async def test_messages_that_are_refused(
    call: RequestContext, url: str, params: dict[str, Any], code: str
) -> None:
    with pytest.raises(AwsError) as caught:
        await send_message(call, {"QueueUrl": url, **params})
    assert caught.value.code == code
    assert waiting(call, url) == 0


async def test_entries_of_a_batch_fail_alone(call: RequestContext, url: str) -> None:
    entries = [
        {"Id": "good", "MessageBody": "x"},
        {"Id": "empty", "MessageBody": ""},
        {"Id": "large", "MessageBody": "x" * 2001},
        {"Id": "late", "MessageBody": "y", "DelaySeconds": 5},
    ]
    answer = await send_message_batch(call, {"QueueUrl": url, "Entries": entries})
    assert [entry["Id"] for entry in answer["Successful"]] == ["good", "late"]
    assert [entry["Id"] for entry in answer["Failed"]] == ["empty", "large"]
    # SQS's words differ from those of SendMessage.
    assert answer["Failed"][1]["Message"] == (
        "One or more parameters cannot be validated. Reason: Message must be shorter than 2000 "
        "bytes."
    )
    assert waiting(call, url) == 2


async def test_a_batch_has_a_size(call: RequestContext, url: str) -> None:
    entries = [{"Id": name, "MessageBody": "x" * (MAX_MESSAGE_BYTES // 2 + 1)} for name in "ab"]
    with pytest.raises(AwsError) as caught:
        await send_message_batch(call, {"QueueUrl": url, "Entries": entries})
    assert caught.value.code == "BatchRequestTooLong"
    with pytest.raises(AwsError, match="SendMessageBatchRequestEntry"):
        await send_message_batch(call, {"QueueUrl": url, "Entries": []})
    assert waiting(call, url) == 0
