"""TagResource, UntagResource, ListTagsForResource: of topics."""

from typing import Any

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.sns.refusals import invalid
from sagehen.store import tags, topics
from sagehen.wire.faults import AwsError

__all__ = ["list_tags_for_resource", "read_tags", "tag_resource", "untag_resource"]

MOST_TAGS = 50


def tag_resource(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Set tags of a topic, over those of the same key."""
    arn, given = params["ResourceArn"], read_tags(params["Tags"])
    with call.database.write() as connection:
        _check_exists(connection, arn)
        _check_count(len(tags.get(connection, arn) | given))
        tags.put(connection, arn, given)
    return {}


def untag_resource(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Take tags off a topic; keys that it has not are no error."""
    with call.database.write() as connection:
        _check_exists(connection, params["ResourceArn"])
        tags.delete(connection, params["ResourceArn"], params["TagKeys"])
    return {}


def list_tags_for_resource(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """All tags of a topic."""
    with call.database.read() as connection:
        _check_exists(connection, params["ResourceArn"])
        found = tags.get(connection, params["ResourceArn"])
    return {"Tags": [{"Key": key, "Value": value} for key, value in found.items()]}


def read_tags(given: list[dict[str, str]]) -> dict[str, str]:
    """The tags of a request by their keys; raises AwsError where a key comes twice, or too many."""
    found = {tag["Key"]: tag["Value"] for tag in given}
    if len(found) < len(given):
        raise invalid("Tags", "Duplicated keys are not allowed.")
    _check_count(len(found))
    return found


def _check_count(count: int) -> None:
    if count > MOST_TAGS:
        raise AwsError(
            "TagLimitExceeded", "Could not complete request: tag quota of per resource exceeded"
        )


def _check_exists(connection: Connection, arn: str) -> None:
    if topics.get(connection, arn) is None:
        raise AwsError("ResourceNotFound", "Resource does not exist")
