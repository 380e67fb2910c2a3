"""The attributes of queues, which there are and what each may be; the names of messages' own."""

import re
from collections.abc import Callable, Iterable

import msgspec

from sagehen.api.sqs.refusals import bad_attribute, fifo, unknown_attribute
from sagehen.domain.queues import DeadLetters
from sagehen.wire.services import service

__all__ = ["DEFAULTS", "check_attribute_names", "check_queue_attributes"]

DEFAULTS = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
_MOST_RECEIVES = 1000
_QUEUE_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")
_FIFO = ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")


def check_queue_attributes(given: dict[str, str]) -> dict[str, str]:
    """What is kept of a queue's attributes: an empty value takes one back.

    Raises:
        AwsError: there is no such attribute, or its value cannot be.
    """
    for name, value in given.items():
        if name in _FIFO and value != "false":
            raise fifo()
        if name in _FIFO or (name in _MAY_BE_EMPTY and not value):
            continue
        if name not in _CHECKS:
            raise unknown_attribute(name)
        if not _CHECKS[name](value):
            raise bad_attribute(name)
    return {name: value for name, value in given.items() if value and name not in _FIFO}


def check_attribute_names(names: Iterable[str], of_messages: bool) -> None:
    """Refuse names that no attribute has.

    Args:
        of_messages: whether names of a message's attributes are known beside those of a queue's,
            as ReceiveMessage knows them.

    Raises:
        AwsError: it names the first that is unknown.
    """
    shapes = ("QueueAttributeName", "MessageSystemAttributeName")
    known = {
        one for shape in shapes[: 1 + of_messages] for one in service("sqs").shape_for(shape).enum
    }
    for name in names:
        if name not in known:
            raise unknown_attribute(name)


def _between(least: int, most: int) -> Callable[[str], bool]:
    return lambda value: re.fullmatch(r"\d{1,9}", value) is not None and least <= int(value) <= most


def _is_json(value: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_redrive(value: str) -> bool:
    try:
        policy = msgspec.json.decode(value, type=DeadLetters)
        count = int(policy.max_receive_count or 0)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    target = _QUEUE_ARN.fullmatch(policy.dead_letter_target_arn)
    return target is not None and 1 <= count <= _MOST_RECEIVES


def _is_flag(value: str) -> bool:
    return value in ("true", "false")


_CHECKS: dict[str, Callable[[str], bool]] = {
    "DelaySeconds": _between(0, 900),
    "KmsDataKeyReusePeriodSeconds": _between(60, 86_400),
    "KmsMasterKeyId": lambda value: len(value) <= 2048,
    "MaximumMessageSize": _between(1024, 2**20),
    "MessageRetentionPeriod": _between(60, 14 * 86_400),
    "Policy": _is_json,
    "ReceiveMessageWaitTimeSeconds": _between(0, 20),
    "RedriveAllowPolicy": _is_json,
    "RedrivePolicy": _is_redrive,
    "SqsManagedSseEnabled": _is_flag,
    "VisibilityTimeout": _between(0, 43_200),
}
_MAY_BE_EMPTY = ("KmsMasterKeyId", "Policy", "RedriveAllowPolicy", "RedrivePolicy")
