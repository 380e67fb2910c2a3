"""EventBridge as its tests use it."""

import json
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.server import eventually

__all__ = [
    "DETAIL",
    "PATTERN",
    "code_of",
    "entry",
    "is_empty",
    "make_queue",
    "put",
    "put_targets",
    "receive",
    "remove",
    "rule_arn",
    "webhook_secret",
]

PATTERN = {
    "source": ["my.jobs"],
    "detail-type": ["SageMaker Training Job State Change"],
    "detail": {"TrainingJobStatus": ["Completed", "Failed", "Stopped"]},
}
DETAIL = {"TrainingJobName": "job-1", "TrainingJobStatus": "Completed", "Tags": {}}


def remove(events: Any, name: str) -> None:
    if targets := events.list_targets_by_rule(Rule=name)["Targets"]:
        events.remove_targets(Rule=name, Ids=[one["Id"] for one in targets])
    events.delete_rule(Name=name)


def make_queue(sqs: Any) -> tuple[str, str]:
    """URL and ARN of a new queue."""
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return url, told["QueueArn"]


def receive(sqs: Any, url: str) -> dict[str, Any]:
    """The next message, once there is one."""
    found: list[dict[str, Any]] = []

    def has_come() -> bool:
        found.extend(_receive(sqs, url, wait_seconds=20))
        return bool(found)

    eventually(has_come)
    (message,) = found
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return message


def is_empty(sqs: Any, url: str) -> bool:
    return not _receive(sqs, url, wait_seconds=0)


def _receive(sqs: Any, url: str, wait_seconds: int) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=wait_seconds, MessageAttributeNames=["All"]
    )
    return list(answer.get("Messages", []))


def entry(source: str, detail: Any = DETAIL, **more: Any) -> dict[str, Any]:
    return {
        "Source": source,
        "DetailType": "SageMaker Training Job State Change",
        "Detail": detail if isinstance(detail, str) else json.dumps(detail),
        **more,
    }


def put(events: Any, *entries: dict[str, Any]) -> list[str]:
    answer = events.put_events(Entries=list(entries))
    assert answer["FailedEntryCount"] == 0, answer
    return [one["EventId"] for one in answer["Entries"]]


def code_of(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def put_targets(events: Any, rule: str, *targets: dict[str, Any]) -> None:
    answer = events.put_targets(Rule=rule, Targets=list(targets))
    assert (answer["FailedEntryCount"], answer["FailedEntries"]) == (0, [])


def webhook_secret(events: Any, rule: str) -> str:
    (listed,) = events.list_targets_by_rule(Rule=rule)["Targets"]
    return str(listed["HttpParameters"]["HeaderParameters"]["WebhookSecret"])


def rule_arn(events: Any, rule: str) -> str:
    return str(events.describe_rule(Name=rule)["Arn"])
