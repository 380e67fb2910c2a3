"""Tags of EventBridge rules."""

from typing import Any

from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.events import rule_store as event_rules
from sagehen.services.messaging.events.errors import invalid, no_bus, no_rule, over_limit

__all__ = ["list_tags_for_resource", "read_tags", "tag_resource", "untag_resource"]

MOST_TAGS = 50


def tag_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn, given = params["ResourceARN"], read_tags(params["Tags"])
    with call.database.write() as connection:
        _check_exists(call, connection, arn)
        _check_count(len(tags.get(connection, arn) | given))
        tags.put(connection, arn, given)
    return {}


def untag_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Unknown keys are no error."""
    with call.database.write() as connection:
        _check_exists(call, connection, params["ResourceARN"])
        tags.delete(connection, params["ResourceARN"], params["TagKeys"])
    return {}


def list_tags_for_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        _check_exists(call, connection, params["ResourceARN"])
        found = tags.get(connection, params["ResourceARN"])
    return {"Tags": [{"Key": key, "Value": value} for key, value in found.items()]}


def read_tags(given: list[dict[str, str]]) -> dict[str, str]:
    """Raises AwsError for duplicate keys or too many tags."""
    found = {tag["Key"]: tag["Value"] for tag in given}
    if len(found) < len(given):
        raise invalid("Parameter Tags is not valid. Reason: a key comes more than once.")
    _check_count(len(found))
    return found


def _check_count(count: int) -> None:
    if count > MOST_TAGS:
        raise over_limit(f"A resource may have {MOST_TAGS} tags; this request would make {count}.")


def _check_exists(call: RequestContext, connection: Connection, arn: str) -> None:
    name = arn.rpartition("/")[2]
    # The ARN may include the bus name.
    names = (call.arns.event_rule(name), call.arns.event_rule(f"default/{name}"))
    if arn not in names or event_rules.get(connection, name) is None:
        raise no_bus(name) if ":event-bus/" in arn else no_rule(name)
