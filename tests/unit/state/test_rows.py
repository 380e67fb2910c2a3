"""Rows from records and back."""

from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table

from sagehen.base.errors import AlreadyExists
from sagehen.state import rows
from sagehen.state.database import Database

THINGS = Table(
    "things",
    MetaData(),
    Column("key", String(63), primary_key=True),
    Column("name", String(63), nullable=False),
    Column("size", Integer, nullable=False),
)


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int


@pytest.fixture
def connection() -> Iterator[Connection]:
    database = Database("sqlite://")
    with database.write() as connection:
        THINGS.metadata.create_all(connection)
        yield connection
    database.close()


def all_things(connection: Connection, **options) -> list[Thing]:
    return rows.select_records(connection, THINGS, Thing, order=[THINGS.c.key], **options)


def test_names_are_unique_regardless_of_case(connection: Connection) -> None:
    rows.insert_named(connection, THINGS, Thing(name="Ab", size=1), "Ab")
    with pytest.raises(AlreadyExists, match="'aB' already"):
        rows.insert_named(connection, THINGS, Thing(name="aB", size=2), "aB")
    # The transaction goes on.
    rows.insert_named(connection, THINGS, Thing(name="b", size=3), "b")
    assert all_things(connection) == [Thing(name="Ab", size=1), Thing(name="b", size=3)]
    assert all_things(connection, limit=1) == [Thing(name="Ab", size=1)]


def test_updates_and_deletes_say_whether_there_was_a_row(connection: Connection) -> None:
    rows.insert_named(connection, THINGS, Thing(name="a", size=1), "a")
    assert rows.update_where(connection, THINGS, Thing(name="a", size=5), THINGS.c.key == "a")
    assert not rows.update_where(connection, THINGS, Thing(name="x", size=5), THINGS.c.key == "x")
    assert all_things(connection) == [Thing(name="a", size=5)]
    assert rows.delete_where(connection, THINGS, THINGS.c.key == "a", THINGS.c.size == 5)
    assert not rows.delete_where(connection, THINGS, THINGS.c.key == "a")


def test_a_row_takes_the_place_of_the_one_with_its_key(connection: Connection) -> None:
    for name, size in (("a", 1), ("b", 2)):
        rows.put(connection, THINGS, "key", {"key": "k", "name": name, "size": size})
    rows.put(connection, THINGS, "key", {"key": "other", "name": "c", "size": 3})
    assert all_things(connection) == [Thing(name="b", size=2), Thing(name="c", size=3)]


def test_each_database_has_its_own_upsert() -> None:
    for dialect in ("sqlite", "postgresql"):
        statement = rows.upsert_for(dialect, THINGS).on_conflict_do_nothing()
        assert "ON CONFLICT DO NOTHING" in str(statement.compile())
