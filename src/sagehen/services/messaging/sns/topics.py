"""Operations on topics and their tags."""

import json
import re
from typing import Any

from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of, read_token
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.attributes import check_topic_attributes, effective_topic_policy
from sagehen.services.messaging.sns.errors import check_arn_length, invalid, no_topic
from sagehen.services.messaging.sns.records import SubscriptionState, TopicRecord
from sagehen.wire.errors import AwsError

__all__ = [
    "PAGE_SIZE",
    "TAG_OPERATIONS",
    "create_topic",
    "delete_topic",
    "existing_topic",
    "get_topic_attributes",
    "list_topics",
    "set_topic_attributes",
    "start_of_page",
]

PAGE_SIZE = 100


def _check_exists(_: RequestContext, connection: Connection, arn: str) -> None:
    if topics.get(connection, arn) is None:
        raise AwsError("ResourceNotFound", "Resource does not exist")


TAG_OPERATIONS = tags.TagOperations(
    arn_member="ResourceArn",
    check_exists=_check_exists,
    repeated_key=lambda: invalid("Duplicated keys are not allowed."),
    too_many=lambda _: AwsError(
        "TagLimitExceeded", "Could not complete request: tag quota of per resource exceeded"
    ),
)


def start_of_page(params: dict[str, Any]) -> str:
    """Returns the ARN behind which a page begins; raises AwsError for a foreign NextToken."""
    return read_token(params.get("NextToken", ""), lambda: invalid("NextToken"), "arn:")


_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
_ARN = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


_STANDARD = ("FifoTopic", "false")
"""what CreateTopic takes of a standard topic, and nothing keeps"""

_OWNERS_ACTIONS = (
    "GetTopicAttributes",
    "SetTopicAttributes",
    "AddPermission",
    "RemovePermission",
    "DeleteTopic",
    "Subscribe",
    "ListSubscriptionsByTopic",
    "Publish",
)


def create_topic(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns an existing topic if it has the attributes and tags."""
    arn = call.arns.sns(_name(params))
    settings = params.get("Attributes", {})
    given = {name: value for name, value in settings.items() if (name, value) != _STANDARD}
    attributes = check_topic_attributes(given, "Attributes")
    given_tags = TAG_OPERATIONS.read(params.get("Tags", []))
    with call.database.write() as connection:
        existing = topics.get(connection, arn)
        if existing is not None:
            _check_same(connection, existing, attributes, given_tags)
            return {"TopicArn": arn}
        _check_quota(connection, call)
        record = TopicRecord(arn=arn, created_at=call.clock.now(), attributes=attributes)
        topics.insert(connection, record)
        tags.put(connection, arn, given_tags)
    return {"TopicArn": arn}


def delete_topic(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An unknown ARN is no error."""
    arn = _arn(params["TopicArn"])
    with call.database.write() as connection:
        topics.delete(connection, arn)
        tags.drop(connection, arn)
    return {}


def list_topics(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        arns = topics.list_arns(connection, start_of_page(params), PAGE_SIZE + 1)
    return page_of("Topics", [{"TopicArn": arn} for arn in arns], arns, PAGE_SIZE)


def get_topic_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        topic = existing_topic(connection, params["TopicArn"])
        count = subscriptions.count(connection, topic.arn)
    return {
        "Attributes": {
            "DisplayName": "",
            "Policy": _default_policy(call, topic.arn),
            **topic.attributes,
            "EffectiveDeliveryPolicy": effective_topic_policy(topic),
            "Owner": call.settings.account_id,
            "SubscriptionsConfirmed": str(count[SubscriptionState.CONFIRMED]),
            "SubscriptionsDeleted": str(count[SubscriptionState.DELETED]),
            "SubscriptionsPending": str(count[SubscriptionState.PENDING]),
            "TopicArn": topic.arn,
        }
    }


def set_topic_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An empty value unsets the attribute."""
    name, value = params["AttributeName"], params.get("AttributeValue", "")
    with call.database.write() as connection:
        topic = existing_topic(connection, params["TopicArn"], lock=True)
        others = {other: topic.attributes[other] for other in topic.attributes if other != name}
        changed = check_topic_attributes({name: value})
        topics.set_attributes(connection, topic.arn, {**others, **changed})
    return {}


def existing_topic(connection: Connection, arn: str, lock: bool = False) -> TopicRecord:
    """Raises AwsError."""
    topic = topics.get(connection, _arn(arn), lock)
    if topic is None:
        raise no_topic()
    return topic


def _name(params: dict[str, Any]) -> str:
    name: str = params["Name"]
    if name.endswith(".fifo") or params.get("Attributes", {}).get("FifoTopic") == "true":
        raise invalid("Topic Name", "FIFO topics are not implemented by Sagehen")
    if not _NAME.fullmatch(name):
        raise invalid("Topic Name")
    if params.get("DataProtectionPolicy"):
        raise invalid("DataProtectionPolicy", "it is not implemented by Sagehen")
    return name


def _arn(arn: str) -> str:
    check_arn_length("TopicArn", arn)
    if not _ARN.fullmatch(arn):
        raise invalid("TopicArn")
    return arn


def _check_same(
    connection: Connection,
    existing: TopicRecord,
    attributes: dict[str, str],
    given_tags: dict[str, str],
) -> None:
    if any(existing.attributes.get(name) != value for name, value in attributes.items()):
        raise invalid("Attributes", "Topic already exists with different attributes")
    if not given_tags.items() <= tags.get(connection, existing.arn).items():
        raise invalid("Tags", "Topic already exists with different tags")


def _check_quota(connection: Connection, call: RequestContext) -> None:
    count = topics.count(connection)
    if count >= call.settings.max_topics:
        raise AwsError(
            "TopicLimitExceeded",
            f"There are {count} topics, as many as the setting max_topics allows.",
        )


def _default_policy(call: RequestContext, arn: str) -> str:
    """The policy has no effect in Sagehen."""
    statement = {
        "Sid": "__default_statement_ID",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": [f"SNS:{action}" for action in _OWNERS_ACTIONS],
        "Resource": arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": call.settings.account_id}},
    }
    policy = {"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": [statement]}
    return json.dumps(policy, separators=(",", ":"))
