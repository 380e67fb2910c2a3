"""SQS by a real boto3 client: queues, their messages, and every refusal."""

import hashlib
import json
import re
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from moto.sqs.models import Message as MotoMessage

from support.plain_http import ask
from support.server import Server, eventually

ACCOUNT = "000000000000"


@pytest.fixture(scope="module")
def sqs(server: Server) -> Any:
    return server.client("sqs")


@pytest.fixture
def queue(sqs: Any) -> Iterator[str]:
    url = make_queue(sqs)
    yield url
    sqs.delete_queue(QueueUrl=url)


def make_queue(sqs: Any, **attributes: str) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def attributes_of(sqs: Any, url: str, *names: str) -> dict[str, str]:
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])
    return dict(told.get("Attributes", {}))


def counts(sqs: Any, url: str) -> tuple[str, str, str]:
    told = attributes_of(sqs, url)
    kinds = ("", "NotVisible", "Delayed")
    return tuple(told[f"ApproximateNumberOfMessages{kind}"] for kind in kinds)  # type: ignore[return-value]


def receive(sqs: Any, url: str, **params: Any) -> list[dict[str, Any]]:
    return list(sqs.receive_message(QueueUrl=url, **params).get("Messages", []))


def code_of(call: Callable[..., Any], **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    error = caught.value.response["Error"]
    assert error["Message"]
    return str(error["Code"])


def told_by(call: Callable[..., Any], **params: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    error = caught.value.response["Error"]
    return str(error["Code"]).removeprefix("AWS.SimpleQueueService."), str(error["Message"])


def unknown(attribute: str) -> tuple[str, str]:
    return "InvalidAttributeName", f"Unknown Attribute {attribute}."


def test_the_life_of_a_queue(sqs: Any, server: Server) -> None:
    name = f"Q_{uuid.uuid4().hex}"
    url = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "0"})["QueueUrl"]
    assert url == f"{server.url}/{ACCOUNT}/{name}"
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    other = {"DelaySeconds": "5"}
    assert code_of(sqs.create_queue, QueueName=name, Attributes=other) == "QueueAlreadyExists"
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    told = attributes_of(sqs, url)
    assert told["QueueArn"] == f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
    assert told["VisibilityTimeout"] == "30"
    assert told["MessageRetentionPeriod"] == "345600"
    assert all(isinstance(value, str) for value in told.values())
    assert "Policy" not in told
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    changed = {"VisibilityTimeout": "5", "Policy": policy}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
    assert attributes_of(sqs, url, "Policy", "VisibilityTimeout") == changed
    assert sqs.get_queue_attributes(QueueUrl=url).get("Attributes") is None
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert attributes_of(sqs, url, "Policy") == {}
    assert url in sqs.list_queues(QueueNamePrefix=name[:10])["QueueUrls"]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=name.lower() + "x")
    sqs.delete_queue(QueueUrl=url)
    assert code_of(sqs.get_queue_url, QueueName=name).endswith("NonExistentQueue")
    assert code_of(sqs.delete_queue, QueueUrl=url).endswith("NonExistentQueue")


def test_pages_of_queues(sqs: Any) -> None:
    prefix = f"page-{uuid.uuid4().hex[:6]}"
    urls = [sqs.create_queue(QueueName=f"{prefix}-{n}")["QueueUrl"] for n in range(5)]
    paginator = sqs.get_paginator("list_queues")
    paging = {"PageSize": 2}
    pages = list(paginator.paginate(QueueNamePrefix=prefix, PaginationConfig=paging))
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]
    assert [url for page in pages for url in page["QueueUrls"]] == urls


def test_tags(sqs: Any, queue: str) -> None:
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=queue)
    sqs.tag_queue(QueueUrl=queue, Tags={"a": "1", "b": ""})
    sqs.untag_queue(QueueUrl=queue, TagKeys=["b", "c"])
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"a": "1"}


def test_the_life_of_a_message(sqs: Any, queue: str) -> None:
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    sent = sqs.send_message(QueueUrl=queue, MessageBody="Hällo\n")
    assert sent["MD5OfMessageBody"] == hashlib.md5("Hällo\n".encode()).hexdigest()
    assert "MD5OfMessageAttributes" not in sent
    (message,) = receive(sqs, queue, AttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "Hällo\n")
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert abs(int(message["Attributes"]["SentTimestamp"]) / 1000 - time.time()) < 60
    assert counts(sqs, queue) == ("0", "1", "0")
    assert receive(sqs, queue) == []
    handle = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
    sqs.change_message_visibility(**handle, VisibilityTimeout=0)
    (again,) = receive(sqs, queue, MessageSystemAttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    assert again["ReceiptHandle"] != message["ReceiptHandle"]
    sqs.delete_message(**handle)  # Another holds it by now.
    assert counts(sqs, queue) == ("0", "1", "0")
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    assert counts(sqs, queue) == ("0", "0", "0")


def test_attributes_of_messages(sqs: Any, queue: str) -> None:
    given = {
        "text": {"DataType": "String.kind", "StringValue": "ü"},
        "number": {"DataType": "Number", "StringValue": "1.50"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
    sent = sqs.send_message(
        QueueUrl=queue,
        MessageBody="b",
        MessageAttributes=given,
        MessageSystemAttributes=trace,
    )
    # As moto calculates them, which was held against SQS itself.
    assert sent["MD5OfMessageAttributes"] == md5_by_moto(given)
    assert sent["MD5OfMessageSystemAttributes"] == md5_by_moto(trace)
    wanted = {"MessageAttributeNames": ["All"], "VisibilityTimeout": 0}
    (message,) = receive(sqs, queue, MessageSystemAttributeNames=["AWSTraceHeader"], **wanted)
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"] == {"AWSTraceHeader": "Root=1-5759e988"}
    wanted["MessageAttributeNames"] = ["num*", "raw"]
    (message,) = receive(sqs, queue, **wanted)
    assert set(message["MessageAttributes"]) == {"number", "raw"}
    (message,) = receive(sqs, queue)
    assert "MessageAttributes" not in message


def md5_by_moto(attributes: dict[str, Any]) -> str:
    message = MotoMessage("id", "body")
    message.message_attributes = attributes
    return str(message.attribute_md5)


SYSTEM_ATTRIBUTES = [
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "SenderId",
    "SentTimestamp",
]


def test_the_older_name_of_system_attributes(sqs: Any, queue: str, server: Server) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="m")
    (got,) = receive(sqs, queue, AttributeNames=SYSTEM_ATTRIBUTES, VisibilityTimeout=0)
    assert sorted(got["Attributes"]) == SYSTEM_ATTRIBUTES
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    for names in ([], ["Policy", "SequenceNumber"]):
        # What is a queue's, or of FIFO queues only, is no error and tells nothing.
        assert "Attributes" not in receive(sqs, queue, AttributeNames=names, VisibilityTimeout=0)[0]
    by_form = by_query(
        server,
        Action="ReceiveMessage",
        QueueUrl=queue,
        **{f"AttributeName.{n}": name for n, name in enumerate(SYSTEM_ATTRIBUTES, 1)},
    )
    assert re.findall("<Name>(.*?)</Name>", by_form) == SYSTEM_ATTRIBUTES


def test_unknown_attributes_are_named_once_the_queue_is_found(sqs: Any, queue: str) -> None:
    gone, nope = queue + "x", {"Attributes": {"Nope": "1"}}
    assert told_by(sqs.create_queue, QueueName="never", **nope) == unknown("Nope")
    for call, params, name in (
        (sqs.get_queue_attributes, {"AttributeNames": ["All", "nope"]}, "nope"),
        (sqs.set_queue_attributes, nope, "Nope"),
        (sqs.set_queue_attributes, {"Attributes": {"QueueArn": "x"}}, "QueueArn"),
    ):
        assert told_by(call, QueueUrl=queue, **params) == unknown(name)
        assert told_by(call, QueueUrl=gone, **params)[0] == "NonExistentQueue"


def test_batches_and_tags_without_anything_in_them(sqs: Any, queue: str) -> None:
    for call, kind in (
        (sqs.send_message_batch, "SendMessage"),
        (sqs.delete_message_batch, "DeleteMessage"),
        (sqs.change_message_visibility_batch, "ChangeMessageVisibility"),
    ):
        assert told_by(call, QueueUrl=queue, Entries=[]) == (
            "EmptyBatchRequest",
            f"There should be at least one {kind}BatchRequestEntry in the request.",
        )
        assert told_by(call, QueueUrl=queue + "x", Entries=[])[0] == "NonExistentQueue"
    for call, name, nothing in (
        (sqs.tag_queue, "Tags", {}),
        (sqs.untag_queue, "TagKeys", []),
    ):
        assert told_by(call, QueueUrl=queue, **{name: nothing}) == (
            "MissingParameter",
            f"The request must contain the parameter {name}.",
        )
        assert told_by(call, QueueUrl=queue + "x", **{name: nothing})[0] == "NonExistentQueue"


def test_an_error_has_its_type_in_full_in_the_header(sqs: Any, queue: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.receive_message(QueueUrl=queue + "x")
    headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-amzn-errortype"] == "com.amazonaws.sqs#QueueDoesNotExist"


def test_words_of_refusals(sqs: Any, queue: str) -> None:
    assert told_by(sqs.receive_message, QueueUrl=queue, WaitTimeSeconds=21)[1] == (
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if "
        "provided."
    )
    empty = {"ErrorDetails": {"DataType": "String", "StringValue": ""}}
    sent = told_by(sqs.send_message, QueueUrl=queue, MessageBody="m", MessageAttributes=empty)
    assert sent == (
        "InvalidParameterValue",
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'.",
    )
    halves = [{"Id": str(n), "MessageBody": "x" * (2**19 + n)} for n in range(2)]
    assert told_by(sqs.send_message_batch, QueueUrl=queue, Entries=halves) == (
        "BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    )


def test_delays(sqs: Any) -> None:
    url = make_queue(sqs, DelaySeconds="900")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert counts(sqs, url) == ("1", "0", "1")
    assert [one["Body"] for one in receive(sqs, url, MaxNumberOfMessages=10)] == ["now"]
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    (message,) = receive(sqs, url, WaitTimeSeconds=10)
    assert message["Body"] == "soon"


def test_batches(sqs: Any, queue: str) -> None:
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(9)]
    bad = {"Id": "bad", "MessageBody": "x", "DelaySeconds": 901}
    answer = sqs.send_message_batch(QueueUrl=queue, Entries=[*entries, bad])
    assert [one["Id"] for one in answer["Successful"]] == [str(n) for n in range(9)]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["SenderFault"]) == ("bad", True)
    messages = receive(sqs, queue, MaxNumberOfMessages=10)
    assert sorted(one["Body"] for one in messages) == [f"m{n}" for n in range(9)]
    held = [
        {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 60}
        for n, one in enumerate(messages)
    ]
    held.append({"Id": "bad", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60})
    answer = sqs.change_message_visibility_batch(QueueUrl=queue, Entries=held)
    assert len(answer["Successful"]) == 9
    assert [one["Code"] for one in answer["Failed"]] == ["ReceiptHandleIsInvalid"]
    for entry in held:
        del entry["VisibilityTimeout"]
    answer = sqs.delete_message_batch(QueueUrl=queue, Entries=held)
    assert len(answer["Successful"]) == 9
    assert [one["Id"] for one in answer["Failed"]] == ["bad"]
    assert counts(sqs, queue) == ("0", "0", "0")


def test_dead_letters(sqs: Any) -> None:
    dead = make_queue(sqs)
    arn = attributes_of(sqs, dead)["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
    url = make_queue(sqs, RedrivePolicy=policy, VisibilityTimeout="0")
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        assert [one["Body"] for one in receive(sqs, url)] == ["poison"]
    assert receive(sqs, url) == []
    (letter,) = receive(sqs, dead, AttributeNames=["All"], WaitTimeSeconds=20)
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "poison")
    told = letter["Attributes"]
    assert told["DeadLetterQueueSourceArn"] == attributes_of(sqs, url)["QueueArn"]
    assert told["ApproximateReceiveCount"] == "3"


def test_purge(sqs: Any, queue: str) -> None:
    for n in range(3):
        sqs.send_message(QueueUrl=queue, MessageBody=str(n))
    (held,) = receive(sqs, queue)
    sqs.purge_queue(QueueUrl=queue)
    assert counts(sqs, queue) == ("0", "0", "0")
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=held["ReceiptHandle"])
    sqs.send_message(QueueUrl=queue, MessageBody="after")
    assert [one["Body"] for one in receive(sqs, queue, MaxNumberOfMessages=10)] == ["after"]


def test_a_long_poll_ends_when_a_message_comes(sqs: Any, queue: str) -> None:
    results: list[tuple[float, int]] = []

    def poll() -> None:
        found = receive(sqs, queue, WaitTimeSeconds=20)
        results.append((time.monotonic(), len(found)))

    pollers = [threading.Thread(target=poll) for _ in range(3)]
    for poller in pollers:
        poller.start()
    time.sleep(0.5)  # So that they wait already; were they late, the test would pass all the same.
    sent_at = time.monotonic()
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(3)]
    sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    for poller in pollers:
        poller.join(120)
    assert [count for _, count in results] == [1, 1, 1]
    assert max(at for at, _ in results) - sent_at < 15


def test_a_long_poll_without_messages_ends_in_time(sqs: Any) -> None:
    url = make_queue(sqs, ReceiveMessageWaitTimeSeconds="1")
    began = time.monotonic()
    assert receive(sqs, url) == []
    assert time.monotonic() - began >= 0.95
    patient = make_queue(sqs, ReceiveMessageWaitTimeSeconds="20")
    began = time.monotonic()
    assert receive(sqs, patient, WaitTimeSeconds=0) == []
    assert time.monotonic() - began < 15


def test_what_becomes_visible_ends_a_long_poll(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="m")
    assert len(receive(sqs, queue, VisibilityTimeout=1)) == 1
    began = time.monotonic()
    assert len(receive(sqs, queue, WaitTimeSeconds=20)) == 1
    assert time.monotonic() - began < 15


def test_the_largest_message(sqs: Any, queue: str) -> None:
    body = "ü" * 2**19
    sqs.send_message(QueueUrl=queue, MessageBody=body)
    (message,) = receive(sqs, queue)
    assert message["Body"] == body
    over = code_of(sqs.send_message, QueueUrl=queue, MessageBody=body + "x")
    assert over == "InvalidParameterValue"
    entries = [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]
    assert code_of(sqs.send_message_batch, QueueUrl=queue, Entries=entries).endswith(
        "BatchRequestTooLong"
    )
    small = make_queue(sqs, MaximumMessageSize="1024")
    sqs.send_message(QueueUrl=small, MessageBody="x" * 1024)
    over = code_of(sqs.send_message, QueueUrl=small, MessageBody="x" * 1025)
    assert over == "InvalidParameterValue"


def test_any_host_in_the_url_will_do(sqs: Any, queue: str) -> None:
    path = queue.split("/", 3)[3]
    for host in ("https://sqs.us-east-1.amazonaws.com/", "http://localhost:1/", "http://other/x/"):
        sqs.send_message(QueueUrl=host + path, MessageBody=host)
    assert counts(sqs, queue)[0] == "3"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"QueueName": "a b"}, "InvalidParameterValue"),
        ({"QueueName": ""}, "InvalidParameterValue"),
        ({"QueueName": "x" * 81}, "InvalidParameterValue"),
        ({"QueueName": "q.fifo"}, "InvalidParameterValue"),
        ({"QueueName": "q", "Attributes": {"FifoQueue": "true"}}, "InvalidParameterValue"),
        ({"QueueName": "q", "Attributes": {"QueueArn": "x"}}, "InvalidAttributeName"),
        ({"QueueName": "q", "Attributes": {"VisibilityTimeout": "43201"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"VisibilityTimeout": "-1"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"VisibilityTimeout": "x"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"DelaySeconds": "901"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"MaximumMessageSize": "1"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"MessageRetentionPeriod": "59"}},
         "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"Policy": "x"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"RedrivePolicy": "{}"}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "Attributes": {"RedrivePolicy": json.dumps(
            {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:none",
             "maxReceiveCount": 1})}}, "InvalidAttributeValue"),
        ({"QueueName": "q", "tags": {str(n): "" for n in range(51)}}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_queues_that_cannot_be(sqs: Any, params: dict[str, Any], code: str) -> None:
    assert code_of(sqs.create_queue, **params) == code


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\x0b"}, "InvalidMessageContents"),
        ({"MessageBody": "m", "DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageBody": "m", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "m", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageBody": "m", "MessageAttributes":
          {str(n): {"DataType": "String", "StringValue": "x"} for n in range(11)}},
         "InvalidParameterValue"),
        ({"MessageBody": "m", "MessageAttributes": {"a b": {"DataType": "String",
          "StringValue": "x"}}}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_messages_that_cannot_be(sqs: Any, queue: str, params: dict[str, Any], code: str) -> None:
    assert code_of(sqs.send_message, QueueUrl=queue, **params) == code
    assert counts(sqs, queue)[0] == "0"


@pytest.mark.parametrize(
    "params",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"WaitTimeSeconds": -1},
        {"VisibilityTimeout": 43_201},
    ],
)
def test_receives_that_cannot_be(sqs: Any, queue: str, params: dict[str, Any]) -> None:
    assert code_of(sqs.receive_message, QueueUrl=queue, **params) == "InvalidParameterValue"


def test_other_refusals(sqs: Any, queue: str) -> None:
    gone = queue + "x"
    for url in (gone, queue.replace(ACCOUNT, "111111111111")):
        for call, more in (
            (sqs.send_message, {"MessageBody": "m"}),
            (sqs.receive_message, {}),
            (sqs.receive_message, {"WaitTimeSeconds": 5}),
            (sqs.delete_message, {"ReceiptHandle": "x"}),
            (sqs.purge_queue, {}),
        ):
            assert code_of(call, QueueUrl=url, **more).endswith("NonExistentQueue")
    assert code_of(sqs.delete_message, QueueUrl=queue, ReceiptHandle="ü") == (
        "ReceiptHandleIsInvalid"
    )
    assert code_of(sqs.send_message_batch, QueueUrl=queue, Entries=[]).endswith("EmptyBatchRequest")
    eleven = [{"Id": str(n), "ReceiptHandle": "x"} for n in range(11)]
    assert code_of(sqs.delete_message_batch, QueueUrl=queue, Entries=eleven).endswith(
        "TooManyEntriesInBatchRequest"
    )
    twice = [{"Id": "a", "ReceiptHandle": "x"}] * 2
    assert code_of(sqs.delete_message_batch, QueueUrl=queue, Entries=twice).endswith(
        "BatchEntryIdsNotDistinct"
    )
    assert code_of(sqs.list_queues, NextToken="ä", MaxResults=5) == "InvalidParameterValue"
    for name in ("AttributeNames", "MessageSystemAttributeNames"):
        assert told_by(sqs.receive_message, QueueUrl=queue, **{name: ["nope"]}) == unknown("nope")
    moving = f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"
    assert code_of(sqs.start_message_move_task, SourceArn=moving).endswith("UnsupportedOperation")


def by_query(server: Server, **params: str) -> str:
    """As clients of before 2023 asked: a signed form, answered in XML."""
    keys = json.loads((server.home / "credentials.json").read_text())
    body = urllib.parse.urlencode({"Version": "2012-11-05", **params}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request = AWSRequest("POST", server.url + "/", form, body)
    SigV4Auth(Credentials(keys["access_key"], keys["secret_key"]), "sqs", "us-east-1").add_auth(
        request
    )
    return ask(server.url + "/", body, dict(request.headers)).body.decode()


def test_the_older_protocol(server: Server, sqs: Any, queue: str) -> None:
    sent = by_query(server, Action="SendMessage", QueueUrl=queue, MessageBody="<old>")
    assert "<MD5OfMessageBody>" in sent
    got = by_query(
        server,
        Action="ReceiveMessage",
        QueueUrl=queue,
        **{"AttributeName.1": "All", "MaxNumberOfMessages": "10"},
    )
    assert "<Body>&lt;old&gt;</Body>" in got
    assert "<Name>ApproximateReceiveCount</Name><Value>1</Value>" in got
    without_body = by_query(server, Action="SendMessage", QueueUrl=queue)
    assert "<Code>MissingParameter</Code>" in without_body
    assert "The request must contain the parameter MessageBody." in without_body
    lost = by_query(server, Action="ReceiveMessage", QueueUrl=queue + "x")
    assert "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in lost
    eventually(lambda: counts(sqs, queue) == ("0", "1", "0"))
