"""Publish, PublishBatch and the table of SNS operations."""

import re
import uuid
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import Operation, RequestContext
from sagehen.services.messaging.batches import (
    MAX_ID_LENGTH,
    BatchWording,
    check_batch,
    try_each,
)
from sagehen.services.messaging.message_attributes import (
    attributes_size,
    is_text,
    read_attributes,
    read_group_id,
)
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.confirmation import confirm_subscription, unsubscribe
from sagehen.services.messaging.sns.errors import invalid, no_topic
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.messaging.sns.subscriptions import (
    get_subscription_attributes,
    list_subscriptions,
    list_subscriptions_by_topic,
    set_subscription_attributes,
    subscribe,
)
from sagehen.services.messaging.sns.topics import (
    TAG_OPERATIONS,
    create_topic,
    delete_topic,
    existing_topic,
    get_topic_attributes,
    list_topics,
    set_topic_attributes,
)
from sagehen.wire.errors import AwsError

__all__ = ["OPERATIONS", "publish", "publish_batch"]

MAX_MESSAGE_BYTES = 262_144
MAX_SUBJECT_LENGTH = 100
_SUBJECT = re.compile(r"[\x21-\x7e][\x20-\x7e]*")


def _bad_id(entry_id: str) -> str:
    reason = (
        "is too long" if len(entry_id) > MAX_ID_LENGTH else "contains an impermissible character"
    )
    return f"The Id of a batch entry in the batch request {reason}: {entry_id[:512]}"


_WORDING = BatchWording(
    empty="The batch request doesn't contain any entries.",
    too_many=lambda _: "The batch request contains more entries than permissible.",
    bad_id=_bad_id,
    repeated_id=lambda _: "Two or more batch entries in the request have the same Id.",
)


def publish(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The message is on disk when this returns."""
    if "PhoneNumber" in params:
        raise invalid("PhoneNumber", "Sagehen does not deliver by sms")
    arn = params.get("TopicArn") or params.get("TargetArn")
    if not arn:
        raise invalid("TopicArn or TargetArn", "no value for required parameter")
    notice, _ = _notice(call, arn, params)
    with call.database.write() as connection:
        existing_topic(connection, arn)
        _publish(connection, notice)
    return {"MessageId": notice.message_id}


def publish_batch(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """The answer lists failed entries."""
    arn, entries = params["TopicArn"], params["PublishBatchRequestEntries"]
    check_batch(entries, _WORDING)
    messages, failed = try_each(entries, lambda entry: _notice(call, arn, entry))
    total = sum(size for _, size in messages.values())
    if total > MAX_MESSAGE_BYTES:
        raise AwsError(
            "BatchRequestTooLong",
            "The length of all the messages put together is more than the limit.",
        )
    with call.database.write() as connection:
        existing_topic(connection, arn)
        for notice, _ in messages.values():
            _publish(connection, notice)
    successful = [
        {"Id": entry_id, "MessageId": notice.message_id}
        for entry_id, (notice, _) in messages.items()
    ]
    return {"Successful": successful, "Failed": failed}


def _publish(connection: Connection, notice: Notice) -> None:
    if not topics.publish(connection, notice):
        raise no_topic()


def _notice(call: RequestContext, arn: str, entry: dict[str, Any]) -> tuple[Notice, int]:
    """Returns the message and its size in bytes."""
    message, subject = entry["Message"], entry.get("Subject")
    _check_message(message, subject)
    try:
        attributes = read_attributes(entry.get("MessageAttributes", {}))
    except Invalid as error:
        raise AwsError("ParameterValueInvalid", str(error)) from None
    size = len(message.encode()) + attributes_size(attributes)
    if size > MAX_MESSAGE_BYTES:
        raise invalid("Message too long")
    structure = entry.get("MessageStructure")
    if structure not in (None, "json"):
        raise invalid("MessageStructure", "it may be json only")
    if "MessageDeduplicationId" in entry:
        raise invalid(
            "MessageDeduplicationId",
            "The request includes MessageDeduplicationId parameter that is not valid for this "
            "topic type",
        )
    try:
        group_id = read_group_id(entry.get("MessageGroupId"))
    except Invalid as error:
        raise invalid("MessageGroupId", str(error)) from None
    notice = Notice(
        message_id=str(uuid.uuid4()),
        topic_arn=arn,
        message=message,
        subject=subject,
        structure=structure,
        attributes=attributes,
        published_at=call.clock.now(),
        group_id=group_id,
        trace_header=call.trace_header,
    )
    try:
        notice.text_for("default")
    except Invalid as error:
        raise invalid(str(error)) from None
    return notice, size


def _check_message(message: str, subject: str | None) -> None:
    if not message:
        raise invalid("Empty message")
    if not is_text(message):
        raise invalid("Message", "it has characters that XML 1.0 does not allow")
    if subject is not None and (
        len(subject) > MAX_SUBJECT_LENGTH or not _SUBJECT.fullmatch(subject)
    ):
        raise invalid(
            "Subject",
            f"it has up to {MAX_SUBJECT_LENGTH} ASCII characters, no line breaks, and does not "
            "begin with a space",
        )


OPERATIONS: dict[str, Operation] = {
    "ConfirmSubscription": confirm_subscription,
    "CreateTopic": create_topic,
    "DeleteTopic": delete_topic,
    "GetSubscriptionAttributes": get_subscription_attributes,
    "GetTopicAttributes": get_topic_attributes,
    "ListSubscriptions": list_subscriptions,
    "ListSubscriptionsByTopic": list_subscriptions_by_topic,
    "ListTagsForResource": TAG_OPERATIONS.list_tags,
    "ListTopics": list_topics,
    "Publish": publish,
    "PublishBatch": publish_batch,
    "SetSubscriptionAttributes": set_subscription_attributes,
    "SetTopicAttributes": set_topic_attributes,
    "Subscribe": subscribe,
    "TagResource": TAG_OPERATIONS.tag_resource,
    "Unsubscribe": unsubscribe,
    "UntagResource": TAG_OPERATIONS.untag_resource,
}
