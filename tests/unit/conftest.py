"""What the tests of several parts share."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from sagehen.state.database import Database
from sagehen.state.migrate import upgrade
from sagehen.state.rows import METADATA
from support.postgres import running_postgres
from support.postgres_proxy import PostgresProxy
from support.state import copied_state

RESTART = """
SELECT setval(format('%I.%I', schemaname, sequencename), start_value, false)
FROM pg_sequences WHERE last_value IS NOT NULL
"""


def clear(connection: Connection) -> None:
    """Not by TRUNCATE: it makes the files of every table and index anew, 0.1 s of a processor."""
    for table in reversed(METADATA.sorted_tables):
        connection.execute(table.delete())
    connection.execute(text(RESTART))


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("empty") / "state.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(empty_state: Path, tmp_path: Path) -> Iterator[Database]:
    with copied_state(empty_state, tmp_path / "state.db") as database:
        yield database


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """An empty PostgreSQL, shared by the tests of a worker."""
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def postgres(postgres_url: str) -> Iterator[Database]:
    """The same, migrated; what a test leaves in it is there for the next."""
    upgrade(postgres_url)
    database = Database(postgres_url)
    yield database
    database.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    """Before the same PostgreSQL."""
    with PostgresProxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: PostgresProxy, postgres: Database) -> Iterator[Database]:
    """The same state as `postgres`, through `proxy`."""
    database = Database(proxy.url)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database(request: pytest.FixtureRequest) -> Database:
    """An empty, migrated state: the test is run with each kind of database."""
    if request.param == "sqlite":
        return request.getfixturevalue("database")
    found: Database = request.getfixturevalue("postgres")
    with found.write() as connection:
        clear(connection)
    return found


@pytest.fixture
def kept() -> Iterator[Callable[[], Counter[str]]]:
    """`kept()` counts, by type, what is ours and only the collector would free."""
    gc.disable()
    gc.freeze()  # What there is by now is no concern of the test, and would take long to look at.
    gc.set_debug(gc.DEBUG_SAVEALL)

    def count() -> Counter[str]:
        gc.collect()
        found = Counter(
            type(one).__name__
            for one in gc.garbage
            if type(one).__module__.startswith(("sagehen.", "httptools."))
        )
        gc.garbage.clear()
        return found

    yield count
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()
    gc.unfreeze()
