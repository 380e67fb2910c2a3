"""Received messages: only the newest receipt deletes them, and any hides them."""

from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs.holding import (
    Receipt,
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
    read_receipt,
    write_receipt,
)
from sagehen.services.messaging.sqs.queues import create_queue
from sagehen.services.messaging.sqs.receiving import receive_message
from sagehen.services.messaging.sqs.records import MessageContent, QueueMessage, QueueRecord
from sagehen.services.messaging.sqs.sending import send_message
from sagehen.wire.errors import AwsError


@pytest.fixture
async def url(call: RequestContext) -> str:
    url = str(create_queue(call, {"QueueName": "q"})["QueueUrl"])
    await send_message(call, {"QueueUrl": url, "MessageBody": "x"})
    return url


async def receive(call: RequestContext, url: str, **params: Any) -> list[str]:
    """The receipt handles of what there was."""
    answer = await receive_message(call, {"QueueUrl": url, **params})
    return [message["ReceiptHandle"] for message in answer.get("Messages", [])]


def test_a_receipt_is_read_as_it_was_written() -> None:
    queue = QueueRecord(name="q", queue_id="id", created_at=0, modified_at=0, attributes={})
    message = QueueMessage(
        sequence=7,
        message_id="m",
        body="",
        content=MessageContent(),
        sent_at=0,
        receives=1,
        first_received_at=0,
        receipt="token",
    )
    assert read_receipt(write_receipt(queue, message)) == Receipt("id", 7, "token")


@pytest.mark.parametrize("handle", ["", "x", "%%", "bm8=", "é"])
def test_what_is_no_receipt(handle: str) -> None:
    with pytest.raises(AwsError) as caught:
        read_receipt(handle)
    assert (caught.value.code, caught.value.status) == ("ReceiptHandleIsInvalid", 404)


async def test_a_deleted_message_does_not_come_back(call: RequestContext, url: str) -> None:
    (handle,) = await receive(call, url, VisibilityTimeout=0)
    (again,) = await receive(call, url, VisibilityTimeout=0)
    await delete_message(call, {"QueueUrl": url, "ReceiptHandle": handle})
    (again,) = await receive(call, url, VisibilityTimeout=0)
    await delete_message(call, {"QueueUrl": url, "ReceiptHandle": again})
    assert await receive(call, url) == []


async def test_a_message_is_given_back(call: RequestContext, url: str) -> None:
    (handle,) = await receive(call, url)
    assert await receive(call, url) == []
    change = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0}
    await change_message_visibility(call, change)
    assert len(await receive(call, url)) == 1
    await change_message_visibility(call, change)  # An older handle will do.
    (newest,) = await receive(call, url)
    await delete_message(call, {"QueueUrl": url, "ReceiptHandle": newest})
    with pytest.raises(AwsError, match="Message does not exist") as caught:
        await change_message_visibility(call, change)
    assert caught.value.code == "InvalidParameterValue"


@pytest.mark.parametrize("seconds", [-1, 43_201, None])
async def test_how_long_a_message_may_be_hidden(
    call: RequestContext, url: str, seconds: int | None
) -> None:
    (handle,) = await receive(call, url)
    params = {"QueueUrl": url, "ReceiptHandle": handle}
    if seconds is not None:
        params["VisibilityTimeout"] = seconds  # type: ignore[assignment]
    with pytest.raises(AwsError, match="VisibilityTimeout"):
        await change_message_visibility(call, params)


async def test_entries_of_a_batch_fail_alone(call: RequestContext, url: str) -> None:
    (handle,) = await receive(call, url)
    entries = [
        {"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 5},
        {"Id": "b", "ReceiptHandle": "x", "VisibilityTimeout": 5},
    ]
    changed = await change_message_visibility_batch(call, {"QueueUrl": url, "Entries": entries})
    assert changed["Successful"] == [{"Id": "a"}]
    deleted = await delete_message_batch(call, {"QueueUrl": url, "Entries": entries})
    assert deleted["Successful"] == [{"Id": "a"}]
    assert [entry["Code"] for entry in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
