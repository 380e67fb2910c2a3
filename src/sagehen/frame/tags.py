"""The tags of each resource, by its ARN."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Column, Connection, String, Table, select

from sagehen.state.rows import METADATA, delete_where, upsert

__all__ = ["TAGS", "delete", "drop", "get", "get_all", "put"]

TAGS = Table(
    "tags",
    METADATA,
    Column("arn", String(256), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("value", String(256), nullable=False),
)


def get(connection: Connection, arn: str) -> dict[str, str]:
    statement = select(TAGS.c.key, TAGS.c.value).where(TAGS.c.arn == arn).order_by(TAGS.c.key)
    return {row.key: row.value for row in connection.execute(statement)}


def get_all(connection: Connection, arns: Iterable[str]) -> dict[str, dict[str, str]]:
    """Leaves out resources without tags."""
    found: dict[str, dict[str, str]] = {}
    statement = select(TAGS).where(TAGS.c.arn.in_(list(arns))).order_by(TAGS.c.key)
    for row in connection.execute(statement):
        found.setdefault(row.arn, {})[row.key] = row.value
    return found


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
