"""Tags of queues."""

from typing import Any

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs.errors import bad_value, missing
from sagehen.services.messaging.sqs.queue_store import find_queue

__all__ = ["list_queue_tags", "read_tags", "tag_queue", "untag_queue"]

MOST_TAGS = 50
LONGEST_KEY, LONGEST_VALUE = 128, 256


def tag_queue(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.write() as connection:
        arn = call.arns.sqs(find_queue(call, connection, params).name)
        if not params["Tags"]:
            raise missing("Tags")
        given = read_tags(params["Tags"])
        read_tags(tags.get(connection, arn) | given)
        tags.put(connection, arn, given)
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
        found = tags.get(connection, arn)
    return {"Tags": found} if found else {}


def read_tags(given: dict[str, str]) -> dict[str, str]:
    """Raises AwsError."""
    if len(given) > MOST_TAGS:
        raise bad_value(f"Too many tags added for queue; a queue has up to {MOST_TAGS}.")
    for key, value in given.items():
        if not 1 <= len(key) <= LONGEST_KEY or len(value) > LONGEST_VALUE:
            raise bad_value(
                f"Tag keys have 1 to {LONGEST_KEY} characters, values up to {LONGEST_VALUE}."
            )
    return given
