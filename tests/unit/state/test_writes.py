"""What an exception of a write says about its commit."""

import sqlite3
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from sagehen.base.errors import CommitUnknown, Conflict, StateFull
from sagehen.frame import tags
from sagehen.state.database import Database, notify, on_rollback
from support.postgres_proxy import PostgresProxy

TAGS = {"a": "1"}


def put(database: Database) -> None:
    with database.write() as connection:
        tags.put(connection, "arn", TAGS)


def stored(database: Database) -> dict[str, str]:
    with database.read() as connection:
        return tags.get(connection, "arn")


@pytest.fixture
def empty(postgres: Database) -> Database:
    with postgres.write() as connection:
        connection.execute(text("DELETE FROM tags"))
    return postgres


def test_lost_answer_to_a_commit_is_unknown(
    empty: Database, proxied: Database, proxy: PostgresProxy
) -> None:
    assert stored(proxied) == {}
    proxy.cuts_commits = True
    with pytest.raises(CommitUnknown, match="made or not"):
        put(proxied)
    proxy.cuts_commits = False
    assert stored(proxied) == TAGS


def test_connection_lost_before_the_commit_commits_nothing(
    empty: Database, proxied: Database
) -> None:
    with pytest.raises(OperationalError), proxied.write() as connection:  # noqa: PT012
        tags.put(connection, "arn", TAGS)
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        with empty.read() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        tags.put(connection, "arn", TAGS)
    assert stored(proxied) == {}


def test_commit_that_the_database_refuses_is_undone(empty: Database) -> None:
    with pytest.raises(IntegrityError), empty.write() as connection:  # noqa: PT012
        tags.put(connection, "arn", TAGS)
        connection.execute(text("CREATE TEMP TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
        connection.execute(text("INSERT INTO t VALUES (1), (1)"))
    assert stored(empty) == {}


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", CommitUnknown),
        (sqlite3.SQLITE_NOMEM, "out of memory", CommitUnknown),
        (sqlite3.SQLITE_FULL, "database or disk is full", StateFull),
        (sqlite3.SQLITE_BUSY, "database is locked", OperationalError),
    ],
)
def test_errors_of_a_commit_to_sqlite(
    database: Database,
    code: int,
    message: str,
    expected: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_connection: Any) -> None:
        error = sqlite3.OperationalError(message)
        error.sqlite_errorcode = code
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(database.engine.dialect, "do_commit", fail)
        with pytest.raises(expected):
            put(database)
    assert stored(database) == {}
    put(database)
    assert stored(database) == TAGS, "the failed transaction is not in the way"


def test_listener_that_fails_does_not_fail_the_write(
    any_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fail(payload: str) -> None:
        heard.append(payload)
        raise OSError(payload)

    any_database.listen("writes", fail)
    with any_database.write() as connection:
        notify(connection, "writes", "one")
        notify(connection, "writes", "two")
    assert sorted(heard) == ["one", "two"]
    assert "A notification was lost." in caplog.text


@pytest.mark.parametrize(
    ("error", "cleaned"),
    [
        (Conflict("no"), True),
        (StateFull("full"), True),
        (OperationalError("", {}, Exception("away")), True),
        (CommitUnknown("unknown"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_what_is_certainly_undone_is_cleaned_up(error: BaseException, cleaned: bool) -> None:
    calls: list[bool] = []
    with pytest.raises(type(error)), on_rollback(lambda: calls.append(True)):
        raise error
    assert calls == [True] * cleaned


def test_clean_up_that_fails_does_not_hide_the_error() -> None:
    def fail() -> None:
        raise OSError("Too many open files")

    with pytest.raises(Conflict), on_rollback(fail):
        raise Conflict("no")
