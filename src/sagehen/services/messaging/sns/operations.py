"""Publish, PublishBatch and the table of SNS operations."""

import re
import uuid
from typing import Any

from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import Operation, RequestContext
from sagehen.services.messaging.message_attributes import (
    attributes_size,
    is_text,
    read_attributes,
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
    create_topic,
    delete_topic,
    existing_topic,
    get_topic_attributes,
    list_tags_for_resource,
    list_topics,
    set_topic_attributes,
    tag_resource,
    untag_resource,
)
from sagehen.wire.errors import AwsError

__all__ = ["OPERATIONS", "publish", "publish_batch"]

LARGEST_MESSAGE_BYTES = 262_144
LONGEST_SUBJECT = 100
MOST_ENTRIES = 10
LONGEST_ENTRY_ID = 80
_ENTRY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_ENTRY_ID}}}")
_SUBJECT = re.compile(r"[\x21-\x7e][\x20-\x7e]*")


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
    _check_entries(entries)
    notices: dict[str, Notice] = {}
    failed: list[dict[str, Any]] = []
    total = 0
    for entry in entries:
        try:
            notices[entry["Id"]], size = _notice(call, arn, entry)
            total += size
        except AwsError as error:
            failed.append(_failed(entry["Id"], error))
    if total > LARGEST_MESSAGE_BYTES:
        raise AwsError(
            "BatchRequestTooLong",
            "The length of all the messages put together is more than the limit.",
        )
    with call.database.write() as connection:
        existing_topic(connection, arn)
        for notice in notices.values():
            _publish(connection, notice)
    done = [{"Id": name, "MessageId": one.message_id} for name, one in notices.items()]
    return {"Successful": done, "Failed": failed}


def _publish(connection: Connection, notice: Notice) -> None:
    if not topics.publish(connection, notice):
        raise no_topic()


def _notice(call: RequestContext, arn: str, given: dict[str, Any]) -> tuple[Notice, int]:
    """Returns the message and its size in bytes."""
    message, subject = given["Message"], given.get("Subject")
    _check_message(message, subject)
    try:
        attributes = read_attributes(given.get("MessageAttributes", {}))
    except Invalid as error:
        raise AwsError("ParameterValueInvalid", str(error)) from None
    size = len(message.encode()) + attributes_size(attributes)
    if size > LARGEST_MESSAGE_BYTES:
        raise invalid("Message too long")
    structure = given.get("MessageStructure")
    if structure not in (None, "json"):
        raise invalid("MessageStructure", "it may be json only")
    if "MessageDeduplicationId" in given:
        raise invalid(
            "MessageDeduplicationId",
            "The request includes MessageDeduplicationId parameter that is not valid for this "
            "topic type",
        )
    notice = Notice(
        message_id=str(uuid.uuid4()),
        topic_arn=arn,
        message=message,
        subject=subject,
        structure=structure,
        attributes=attributes,
        published_at=call.clock.now(),
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
    if subject is not None and (len(subject) > LONGEST_SUBJECT or not _SUBJECT.fullmatch(subject)):
        raise invalid(
            "Subject",
            f"it has up to {LONGEST_SUBJECT} ASCII characters, no line breaks, and does not begin "
            "with a space",
        )


def _check_entries(entries: list[dict[str, Any]]) -> None:
    if not entries:
        raise AwsError("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > MOST_ENTRIES:
        raise AwsError(
            "TooManyEntriesInBatchRequest",
            "The batch request contains more entries than permissible.",
        )
    ids = [entry["Id"] for entry in entries]
    if len(set(ids)) < len(ids):
        raise AwsError(
            "BatchEntryIdsNotDistinct",
            "Two or more batch entries in the request have the same Id.",
        )
    for one in ids:
        if not _ENTRY_ID.fullmatch(one):
            fault = (
                "is too long"
                if len(one) > LONGEST_ENTRY_ID
                else "contains an impermissible character"
            )
            raise AwsError(
                "InvalidBatchEntryId",
                f"The Id of a batch entry in the batch request {fault}: {one[:512]}",
            )


def _failed(entry_id: str, error: AwsError) -> dict[str, Any]:
    return {"Id": entry_id, "Code": error.code, "Message": error.message, "SenderFault": True}


OPERATIONS: dict[str, Operation] = {
    "ConfirmSubscription": confirm_subscription,
    "CreateTopic": create_topic,
    "DeleteTopic": delete_topic,
    "GetSubscriptionAttributes": get_subscription_attributes,
    "GetTopicAttributes": get_topic_attributes,
    "ListSubscriptions": list_subscriptions,
    "ListSubscriptionsByTopic": list_subscriptions_by_topic,
    "ListTagsForResource": list_tags_for_resource,
    "ListTopics": list_topics,
    "Publish": publish,
    "PublishBatch": publish_batch,
    "SetSubscriptionAttributes": set_subscription_attributes,
    "SetTopicAttributes": set_topic_attributes,
    "Subscribe": subscribe,
    "TagResource": tag_resource,
    "Unsubscribe": unsubscribe,
    "UntagResource": untag_resource,
}
