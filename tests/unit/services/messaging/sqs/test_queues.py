"""Queues: made once, their attributes, pages and tags."""

import dataclasses
import json
from typing import Any

import pytest

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs import queues
from sagehen.wire.errors import AwsError

ARN = "arn:aws:sqs:us-east-1:000000000000"


def create(call: RequestContext, name: str = "q", **params: Any) -> str:
    return str(queues.create_queue(call, {"QueueName": name, **params})["QueueUrl"])


def attributes(call: RequestContext, url: str, *names: str) -> dict[str, str]:
    params = {"QueueUrl": url, "AttributeNames": list(names)}
    found: dict[str, str] = queues.get_queue_attributes(call, params).get("Attributes", {})
    return found


def test_the_same_queue_is_made_once(call: RequestContext) -> None:
    url = create(call, Attributes={"VisibilityTimeout": "5"})
    assert create(call, Attributes={"VisibilityTimeout": "5"}) == url
    with pytest.raises(AwsError) as caught:
        create(call, Attributes={"VisibilityTimeout": "6"})
    assert caught.value.code == "QueueNameExists"
    assert queues.get_queue_url(call, {"QueueName": "q"})["QueueUrl"] == url
    with pytest.raises(AwsError, match="does not exist"):
        queues.get_queue_url(call, {"QueueName": "q", "QueueOwnerAWSAccountId": "1" * 12})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", "-1"),
        ("DelaySeconds", "901"),
        ("MaximumMessageSize", "1023"),
        ("MessageRetentionPeriod", "59"),
        ("RedrivePolicy", "{}"),
        ("RedrivePolicy", json.dumps({"deadLetterTargetArn": f"{ARN}:d", "maxReceiveCount": 0})),
        ("RedrivePolicy", json.dumps({"deadLetterTargetArn": "d", "maxReceiveCount": 1})),
        ("RedrivePolicy", json.dumps({"deadLetterTargetArn": f"{ARN}:d", "maxReceiveCount": 1})),
        ("SqsManagedSseEnabled", "yes"),
        ("Other", "x"),
        ("FifoQueue", "true"),
    ],
)
def test_attributes_that_are_refused(call: RequestContext, name: str, value: str) -> None:
    with pytest.raises(AwsError):
        create(call, Attributes={name: value})
    assert queues.list_queues(call, {}) == {}


def test_attributes_are_changed_and_unset(call: RequestContext) -> None:
    dead = create(call, "dead")
    url = create(call)
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}:dead", "maxReceiveCount": "3"})
    change = {"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}}
    queues.set_queue_attributes(call, change)
    assert attributes(call, url, "RedrivePolicy") == {"RedrivePolicy": policy}
    sources = queues.list_dead_letter_source_queues(call, {"QueueUrl": dead})
    assert sources["queueUrls"] == [url]
    queues.set_queue_attributes(call, {"QueueUrl": url, "Attributes": {"RedrivePolicy": ""}})
    everything = attributes(call, url, "All")
    assert "RedrivePolicy" not in everything
    assert everything["QueueArn"] == f"{ARN}:q"
    assert everything["ApproximateNumberOfMessages"] == "0"
    assert attributes(call, url) == {}


def test_queues_are_listed_by_pages(call: RequestContext) -> None:
    urls = [create(call, name) for name in ("a", "b", "c", "x")]
    page = queues.list_queues(call, {"MaxResults": 3})
    rest = queues.list_queues(call, {"MaxResults": 3, "NextToken": page["NextToken"]})
    assert page["QueueUrls"] + rest["QueueUrls"] == urls
    assert "NextToken" not in rest
    assert queues.list_queues(call, {"QueueNamePrefix": "x"}) == {"QueueUrls": [urls[3]]}
    for params in ({"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "%"}):
        with pytest.raises(AwsError):
            queues.list_queues(call, params)


def test_a_quota(call: RequestContext) -> None:
    settings = call.settings.model_copy(update={"max_queues": 1})
    call = dataclasses.replace(call, settings=settings)
    create(call, "a")
    with pytest.raises(AwsError, match="max_queues"):
        create(call, "b")


def test_tags_go_with_their_queue(call: RequestContext) -> None:
    url = create(call, tags={"a": "1"})
    queues.tag_queue(call, {"QueueUrl": url, "Tags": {"b": "2"}})
    queues.untag_queue(call, {"QueueUrl": url, "TagKeys": ["a", "none"]})
    assert queues.list_queue_tags(call, {"QueueUrl": url}) == {"Tags": {"b": "2"}}
    for tags in ({str(number): "" for number in range(50)}, {"k" * 129: ""}, {"k": "v" * 257}, {}):
        with pytest.raises(AwsError):
            queues.tag_queue(call, {"QueueUrl": url, "Tags": tags})
    assert queues.list_queue_tags(call, {"QueueUrl": url}) == {"Tags": {"b": "2"}}
    queues.delete_queue(call, {"QueueUrl": url})
    assert queues.list_queue_tags(call, {"QueueUrl": create(call)}) == {}
