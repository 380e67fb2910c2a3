"""SNS: topics, subscriptions, publishing. A module per family; the operations by name."""

from sagehen.api.call import Operation
from sagehen.api.sns.confirmation import confirm_subscription, unsubscribe
from sagehen.api.sns.publish import publish, publish_batch
from sagehen.api.sns.subscriptions import (
    get_subscription_attributes,
    list_subscriptions,
    list_subscriptions_by_topic,
    set_subscription_attributes,
    subscribe,
)
from sagehen.api.sns.tags import list_tags_for_resource, tag_resource, untag_resource
from sagehen.api.sns.topics import (
    create_topic,
    delete_topic,
    get_topic_attributes,
    list_topics,
    set_topic_attributes,
)

__all__ = ["OPERATIONS"]

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
