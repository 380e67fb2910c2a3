"""The state in PostgreSQL: the same functions, and several writers at once."""

import threading
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, text
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import AlreadyExists, CommitUnknown, Invalid
from sagehen.frame import tags
from sagehen.frame.named_records import ListQuery
from sagehen.services.sagemaker.hosting.definition_store import models
from sagehen.services.sagemaker.hosting.records import ModelRecord
from sagehen.state import leases, postgresql
from sagehen.state.database import Database
from sagehen.state.migrate import upgrade
from support.postgres_proxy import PostgresProxy


@pytest.fixture(scope="module")
def database(postgres_url: str) -> Iterator[Database]:
    threads = [threading.Thread(target=upgrade, args=(postgres_url,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database = Database(postgres_url)
    yield database
    database.close()


def model(name: str) -> ModelRecord:
    return ModelRecord(name=name, arn=name, created_at=1.1, definition={"x": ["\x00ü", 1.5, None]})


def test_migrations_make_the_tables(database: Database, metadata: MetaData) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_connections_to_a_machine_that_is_gone_end_soon(postgres_url: str) -> None:
    for more, wanted in (("", "10000"), ("&tcp_user_timeout=5", "5")):
        database = Database(postgres_url + more)
        with database.read() as connection:
            told = connection.connection.driver_connection.info.get_parameters()
        database.close()
        assert told["tcp_user_timeout"] == wanted
        assert (told["connect_timeout"], told["keepalives_idle"]) == ("10", "5")


def test_rows(database: Database) -> None:
    with database.write() as connection:
        models.insert(connection, model("One"))
        with pytest.raises(AlreadyExists):
            models.insert(connection, model("oNE"))
        assert models.get(connection, "one") == model("One")
        models.insert(connection, model("Two"))
        first, token = models.list_page(connection, ListQuery(limit=1))
        second, last = models.list_page(connection, ListQuery(limit=1, token=token))
        assert ([first[0].name, second[0].name], last) == (["Two", "One"], None)
        tags.put(connection, "arn", {"a": "1"})
        tags.put(connection, "arn", {"a": "2"})
        assert tags.get(connection, "arn") == {"a": "2"}


def test_a_token_with_what_no_column_holds(database: Database) -> None:
    # ["created_at",true,1,"\u0000"]
    token = "WyJjcmVhdGVkX2F0Iix0cnVlLDEsIlx1MDAwMCJd"
    with database.read() as connection, pytest.raises(Invalid):
        models.list_page(connection, ListQuery(limit=1, token=token))


def test_text_with_nul_stops_nothing(database: Database) -> None:
    # As a reason of a failure may have it, which is whatever a user's code says.
    with database.write() as connection:
        tags.put(connection, "arn", {"reason": "ValueError: \x00ü\x00"})
        assert tags.get(connection, "arn")["reason"] == "ValueError: \ufffdü\ufffd"


def test_one_lease_holder_of_many(database: Database) -> None:
    won = []

    def attempt(holder: str) -> None:
        with database.write() as connection:
            if leases.acquire(connection, "loop", holder, now=0, ttl_seconds=10):
                won.append(holder)

    threads = [threading.Thread(target=attempt, args=(str(i),)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_silent_database_is_given_up(
    proxy: PostgresProxy, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at TCP tells that it is silent: the proxy takes all that is sent."""
    monkeypatch.setattr(postgresql, "ANSWER_SECONDS", 0.2)
    silent = Database(proxy.url + "?connect_timeout=2", by_control=True)
    with silent.read() as connection, pytest.raises(OperationalError, match="does not answer"):  # noqa: PT012
        proxy.is_silent = True
        connection.execute(text("SELECT 1"))
    for reason in ("timeout", "does not answer"):
        # The second does not wait: many that wait in turn would wait for ever.
        with pytest.raises(OperationalError, match=reason), silent.write():
            pass
    proxy.is_silent = False
    silent.connect_apart().close()
    with silent.write() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    with pytest.raises(CommitUnknown), silent.write() as connection:  # noqa: PT012
        tags.put(connection, "silent", {"a": "1"})
        proxy.is_silent = True
    silent.close()
