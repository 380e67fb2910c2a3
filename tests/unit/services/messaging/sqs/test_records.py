"""A queue's numbers, with SQS's defaults, and the ARNs of standard queues."""

import pytest

from sagehen.services.messaging.sqs.records import QUEUE_ARN, QueueRecord


def queue(**attributes: str) -> QueueRecord:
    return QueueRecord(name="q", queue_id="q", created_at=0, modified_at=0, attributes=attributes)


def test_defaults() -> None:
    plain = queue()
    assert (plain.visibility_seconds, plain.retention_seconds) == (30, 345_600)
    assert (plain.delay_seconds, plain.wait_seconds, plain.dead_letters) == (0, 0, None)


def test_what_the_owner_set() -> None:
    policy = '{"deadLetterTargetArn": "arn", "maxReceiveCount": "3"}'
    owned = queue(VisibilityTimeout="0", DelaySeconds="5", RedrivePolicy=policy)
    assert (owned.visibility_seconds, owned.delay_seconds) == (0, 5)
    assert owned.dead_letters is not None
    assert (owned.dead_letters.dead_letter_target_arn, owned.dead_letters.max_receive_count) == (
        "arn",
        "3",
    )


@pytest.mark.parametrize(
    ("arn", "is_one"),
    [
        ("arn:aws:sqs:us-east-1:000000000000:name", True),
        ("arn:aws-cn:sqs:cn-north-1:000000000000:a_b-c", True),
        ("arn:aws:sqs:us-east-1:000000000000:name.fifo", False),
        ("arn:aws:sns:us-east-1:000000000000:name", False),
        ("arn:aws:sqs:us-east-1:0:name", False),
        (f"arn:aws:sqs:us-east-1:000000000000:{'x' * 81}", False),
    ],
)
def test_arns_of_standard_queues(arn: str, is_one: bool) -> None:
    assert (QUEUE_ARN.fullmatch(arn) is not None) is is_one
