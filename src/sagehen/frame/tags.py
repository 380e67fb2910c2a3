"""The tags of each resource, by its ARN, and the operations on them that services share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, String, Table, select

from sagehen.frame.context import RequestContext
from sagehen.state.rows import METADATA, delete_where, upsert
from sagehen.wire.errors import AwsError

__all__ = [
    "MAX_TAGS",
    "TAGS",
    "TagOperations",
    "as_list",
    "delete",
    "drop",
    "get",
    "get_all",
    "put",
]

MAX_TAGS = 50
"""per resource"""

TAGS = Table(
    "tags",
    METADATA,
    Column("arn", String(512), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("value", String(256), nullable=False),
)


def get(connection: Connection, arn: str) -> dict[str, str]:
    statement = select(TAGS.c.key, TAGS.c.value).where(TAGS.c.arn == arn).order_by(TAGS.c.key)
    return {row.key: row.value for row in connection.execute(statement)}


def get_all(connection: Connection, arns: Iterable[str]) -> dict[str, dict[str, str]]:
    """Leaves out resources without tags."""
    by_arn: dict[str, dict[str, str]] = {}
    statement = select(TAGS).where(TAGS.c.arn.in_(list(arns))).order_by(TAGS.c.key)
    for row in connection.execute(statement):
        by_arn.setdefault(row.arn, {})[row.key] = row.value
    return by_arn


def put(connection: Connection, arn: str, tags: Mapping[str, str]) -> None:
    """Sets tags; other keys stay."""
    for key, value in tags.items():
        statement = upsert(connection, TAGS).values(arn=arn, key=key, value=value)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[TAGS.c.arn, TAGS.c.key], set_={"value": value}
            )
        )


def delete(connection: Connection, arn: str, keys: Iterable[str]) -> None:
    delete_where(connection, TAGS, TAGS.c.arn == arn, TAGS.c.key.in_(list(keys)))


def drop(connection: Connection, arn: str) -> None:
    delete_where(connection, TAGS, TAGS.c.arn == arn)


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns tags as most services list them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


@dataclass(frozen=True, kw_only=True)
class TagOperations:
    """TagResource, UntagResource and ListTagsForResource of one service."""

    arn_member: str
    """of the requests: `ResourceArn`"""
    check_exists: Callable[[RequestContext, Connection, str], None]
    """raises AwsError for an ARN without a resource"""
    repeated_key: Callable[[], AwsError]
    too_many: Callable[[int], AwsError]

    def read(self, items: Sequence[Mapping[str, str]]) -> dict[str, str]:
        """Raises AwsError for duplicate keys or too many tags."""
        tags = {item["Key"]: item["Value"] for item in items}
        if len(tags) < len(items):
            raise self.repeated_key()
        self._check_count(len(tags))
        return tags

    def tag_resource(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        arn, tags = params[self.arn_member], self.read(params["Tags"])
        with call.database.write() as connection:
            self.check_exists(call, connection, arn)
            self._check_count(len(get(connection, arn) | tags))
            put(connection, arn, tags)
        return {}

    def untag_resource(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        """Unknown keys are no error."""
        arn = params[self.arn_member]
        with call.database.write() as connection:
            self.check_exists(call, connection, arn)
            delete(connection, arn, params["TagKeys"])
        return {}

    def list_tags(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        arn = params[self.arn_member]
        with call.database.read() as connection:
            self.check_exists(call, connection, arn)
            return {"Tags": as_list(get(connection, arn))}

    def _check_count(self, count: int) -> None:
        if count > MAX_TAGS:
            raise self.too_many(count)
