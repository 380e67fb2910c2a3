"""Queue operations and attribute checks."""

import re
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.paging import read_token, write_token
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.errors import (
    bad_attribute,
    bad_value,
    fifo,
    missing,
    no_queue,
    out_of_range,
    unknown_attribute,
)
from sagehen.services.messaging.sqs.queue_store import find_queue, queue_url
from sagehen.services.messaging.sqs.records import (
    MAX_VISIBILITY_SECONDS,
    QUEUE_ARN,
    DeadLetters,
    QueueRecord,
)
from sagehen.wire.errors import AwsError
from sagehen.wire.services import service

__all__ = [
    "DEFAULTS",
    "check_attribute_names",
    "check_queue_attributes",
    "create_queue",
    "delete_queue",
    "get_queue_attributes",
    "get_queue_url",
    "list_dead_letter_source_queues",
    "list_queue_tags",
    "list_queues",
    "purge_queue",
    "set_queue_attributes",
    "tag_queue",
    "untag_queue",
]

DEFAULTS = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
_MAX_RECEIVES = 1000
MAX_TAG_KEY_LENGTH, MAX_TAG_VALUE_LENGTH = 128, 256


def check_queue_attributes(attributes: dict[str, str]) -> dict[str, str]:
    """Checks attributes and drops empty values, which unset them; raises AwsError."""
    for name, value in attributes.items():
        if name == "FifoQueue" and value == "true":
            raise fifo()
        if name in _MAY_BE_EMPTY and not value:
            continue
        if name not in _CHECKS:
            raise unknown_attribute(name)
        if not _CHECKS[name](value):
            raise bad_attribute(name)
    return {name: value for name, value in attributes.items() if value}


def check_attribute_names(names: Iterable[str], of_messages: bool) -> None:
    """Raises AwsError.

    Args:
        of_messages: allow message attributes, too, as ReceiveMessage does.
    """
    shapes = ("QueueAttributeName", "MessageSystemAttributeName")
    known = {
        allowed
        for shape in shapes[: 1 + of_messages]
        for allowed in service("sqs").shape_for(shape).enum
    }
    for name in names:
        if name not in known:
            raise unknown_attribute(name)


def _between(minimum: int, maximum: int) -> Callable[[str], bool]:
    return lambda value: (
        re.fullmatch(r"\d{1,9}", value) is not None and minimum <= int(value) <= maximum
    )


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
    target = QUEUE_ARN.fullmatch(policy.dead_letter_target_arn)
    return target is not None and 1 <= count <= _MAX_RECEIVES


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
    "VisibilityTimeout": _between(0, MAX_VISIBILITY_SECONDS),
}
_MAY_BE_EMPTY = ("KmsMasterKeyId", "Policy", "RedriveAllowPolicy", "RedrivePolicy")


MAX_PAGE_SIZE = 1000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def create_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns an existing queue if its attributes are the same."""
    name = _name(params["QueueName"])
    given_tags = _check_tags(name, params.get("tags", {}))
    attributes = check_queue_attributes(params.get("Attributes", {}))
    with call.database.write() as connection:
        existing = queues.get(connection, name)
        if existing is not None:
            _check_same(existing, attributes)
            return {"QueueUrl": queue_url(call, name)}
        _check_dead_letters(call, connection, attributes)
        _check_quota(call, connection)
        now = call.clock.now()
        record = QueueRecord(
            name=name,
            queue_id=uuid.uuid4().hex,
            created_at=now,
            modified_at=now,
            attributes=attributes,
        )
        queues.insert(connection, record)
        tags.put(connection, call.arns.sqs(name), given_tags)
    return {"QueueUrl": queue_url(call, name)}


def get_queue_url(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    owner = params.get("QueueOwnerAWSAccountId", call.settings.account_id)
    with call.database.read() as connection:
        queue = queues.get(connection, params["QueueName"])
    if queue is None or owner != call.settings.account_id:
        raise no_queue()
    return {"QueueUrl": queue_url(call, queue.name)}


def _bad_token() -> AwsError:
    return bad_value("Invalid or expired next token.")


def list_queues(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Without MaxResults, returns the first thousand, as SQS does."""
    limit = _page_size(params)
    after = read_token(params.get("NextToken", ""), _bad_token)
    with call.database.read() as connection:
        prefix = params.get("QueueNamePrefix", "")
        names = queues.list_names(connection, prefix, after, limit + 1)
    answer: dict[str, Any] = {}
    if names:
        answer["QueueUrls"] = [queue_url(call, name) for name in names[:limit]]
    if "MaxResults" in params and len(names) > limit:
        answer["NextToken"] = write_token(names[limit - 1])
    return answer


def list_dead_letter_source_queues(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns all sources; there is no second page."""
    with call.database.read() as connection:
        arn = call.arns.sqs(find_queue(call, connection, params).name)
        sources = [
            source.name
            for source in queues.all(connection)
            if source.dead_letters is not None and source.dead_letters.dead_letter_target_arn == arn
        ]
    return {"queueUrls": [queue_url(call, name) for name in sources]}


def get_queue_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    requested = dict.fromkeys(params.get("AttributeNames", ()))
    with call.database.read() as connection:
        queue = find_queue(call, connection, params)
        check_attribute_names(requested, of_messages=False)
        known = {
            **_effective(queue),
            "CreatedTimestamp": str(int(queue.created_at)),
            "LastModifiedTimestamp": str(int(queue.modified_at)),
            "QueueArn": call.arns.sqs(queue.name),
        }
        if any(name == "All" or name.startswith("Approximate") for name in requested):
            known |= _counts(call, connection, queue)
    chosen = (
        known if "All" in requested else {name: known[name] for name in requested if name in known}
    )
    return {"Attributes": chosen} if chosen else {}


def set_queue_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.write() as connection:
        queue = find_queue(call, connection, params, lock=True)
        attributes = check_queue_attributes({**queue.attributes, **params["Attributes"]})
        _check_dead_letters(call, connection, params["Attributes"])
        queues.set_attributes(connection, queue, attributes, call.clock.now())
    return {}


def purge_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Also deletes received messages."""
    with call.database.write() as connection:
        queues.purge(connection, find_queue(call, connection, params, lock=True), call.clock.now())
    return {}


def delete_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.write() as connection:
        queue = find_queue(call, connection, params, lock=True)
        queues.delete(connection, queue, call.clock.now())
        tags.drop(connection, call.arns.sqs(queue.name))
    return {}


def _name(name: str) -> str:
    if name.endswith(".fifo"):
        raise fifo()
    if not _NAME.fullmatch(name):
        raise bad_value(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return name


def _effective(queue: QueueRecord) -> dict[str, str]:
    """A key of KMS replaces the encryption by SQS."""
    by_key = {"SqsManagedSseEnabled": "false"} if "KmsMasterKeyId" in queue.attributes else {}
    return {**DEFAULTS, **queue.attributes, **by_key}


def _check_same(existing: QueueRecord, attributes: dict[str, str]) -> None:
    known = _effective(existing)
    for name, value in attributes.items():
        if known.get(name) != value:
            raise AwsError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{name}",
                400,
            )


def _check_dead_letters(
    call: RequestContext, connection: Connection, attributes: dict[str, str]
) -> None:
    """Refuses missing targets, as SQS does: messages would be received for ever."""
    policy = attributes.get("RedrivePolicy")
    if not policy:
        return
    arn: str = msgspec.json.decode(policy)["deadLetterTargetArn"]
    name = arn.rpartition(":")[2]
    if arn != call.arns.sqs(name) or queues.get(connection, name) is None:
        raise bad_attribute("RedrivePolicy", "Dead letter target does not exist.")


def _check_quota(call: RequestContext, connection: Connection) -> None:
    count = queues.count(connection)
    if count >= call.settings.max_queues:
        raise AwsError(
            "OverLimit",
            f"There are {count} queues, as many as the setting max_queues allows.",
            403,
        )


def _counts(call: RequestContext, connection: Connection, queue: QueueRecord) -> dict[str, str]:
    visible, received, delayed = messages.counts(connection, queue, call.clock.now())
    return {
        "ApproximateNumberOfMessages": str(visible),
        "ApproximateNumberOfMessagesDelayed": str(delayed),
        "ApproximateNumberOfMessagesNotVisible": str(received),
    }


def _page_size(params: dict[str, Any]) -> int:
    size: int = params.get("MaxResults", MAX_PAGE_SIZE)
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise out_of_range("MaxResults", size, 1, MAX_PAGE_SIZE)
    return size


def tag_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.write() as connection:
        name = find_queue(call, connection, params).name
        if not params["Tags"]:
            raise missing("Tags")
        tags.put(connection, call.arns.sqs(name), _check_tags(name, params["Tags"]))
        _check_tags(name, tags.get(connection, call.arns.sqs(name)))
    return {}


def untag_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Unknown keys are no error."""
    with call.database.write() as connection:
        arn = call.arns.sqs(find_queue(call, connection, params).name)
        if not params["TagKeys"]:
            raise missing("TagKeys")
        tags.delete(connection, arn, params["TagKeys"])
    return {}


def list_queue_tags(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        arn = call.arns.sqs(find_queue(call, connection, params).name)
        queue_tags = tags.get(connection, arn)
    return {"Tags": queue_tags} if queue_tags else {}


def _check_tags(name: str, queue_tags: dict[str, str]) -> dict[str, str]:
    """Raises AwsError."""
    if len(queue_tags) > tags.MAX_TAGS:
        raise bad_value(f"Too many tags added for queue {name}.")
    for key, value in queue_tags.items():
        if not 1 <= len(key) <= MAX_TAG_KEY_LENGTH or len(value) > MAX_TAG_VALUE_LENGTH:
            raise bad_value(
                f"Tag keys have 1 to {MAX_TAG_KEY_LENGTH} characters, values up to "
                f"{MAX_TAG_VALUE_LENGTH}."
            )
    return queue_tags
