"""Tags: by the ARN of what they belong to."""

from sagehen.frame import tags
from sagehen.state.database import Database


def test_put_get_delete_drop(database: Database) -> None:
    with database.write() as connection:
        tags.put(connection, "one", {"b": "2", "a": ""})
        tags.put(connection, "one", {"b": "new", "c": "3"})
        tags.put(connection, "two", {"b": "theirs"})
        assert tags.get(connection, "one") == {"a": "", "b": "new", "c": "3"}
        tags.delete(connection, "one", ["a", "never-there"])
        assert tags.get(connection, "one") == {"b": "new", "c": "3"}
        tags.drop(connection, "one")
        assert tags.get(connection, "one") == {}
        assert tags.get(connection, "two") == {"b": "theirs"}
