"""The table of SQS operations."""

from sagehen.frame.context import AsyncOperation, Operation
from sagehen.services.messaging.sqs.holding import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from sagehen.services.messaging.sqs.queues import (
    create_queue,
    delete_queue,
    get_queue_attributes,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queue_tags,
    list_queues,
    purge_queue,
    set_queue_attributes,
    tag_queue,
    untag_queue,
)
from sagehen.services.messaging.sqs.receiving import receive_message
from sagehen.services.messaging.sqs.sending import send_message, send_message_batch

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation | AsyncOperation] = {
    "ChangeMessageVisibility": change_message_visibility,
    "ChangeMessageVisibilityBatch": change_message_visibility_batch,
    "CreateQueue": create_queue,
    "DeleteMessage": delete_message,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteQueue": delete_queue,
    "GetQueueAttributes": get_queue_attributes,
    "GetQueueUrl": get_queue_url,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "ListQueueTags": list_queue_tags,
    "ListQueues": list_queues,
    "PurgeQueue": purge_queue,
    "ReceiveMessage": receive_message,
    "SendMessage": send_message,
    "SendMessageBatch": send_message_batch,
    "SetQueueAttributes": set_queue_attributes,
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
}
