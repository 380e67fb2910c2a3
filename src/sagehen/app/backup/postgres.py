"""Dumps and loads a PostgreSQL state with pg_dump and pg_restore."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import DBAPIError

from sagehen.base.errors import BackupError, StateError
from sagehen.state.database import Database

__all__ = ["is_empty", "load_dump", "snapshot"]

_HAS_EPOCHS = text(
    "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() "
    "AND table_name = 'leases' AND column_name = 'epoch'"
)
# Nodes refuse requests of an epoch that is lower than one they have seen, which may be later than
# the backup.
_RAISE_EPOCHS = text(
    "UPDATE leases SET epoch = epoch + 1000000, expires_at = 0, holder = '', session = ''"
)
# See `restore.forget_cluster`.
_OF_CLUSTER = text(
    "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() "
    "AND table_name IN ('nodes', 'cluster')"
)
_BLOBS = text("SELECT blob_id, size, etag FROM blobs ORDER BY blob_id")


@contextmanager
def snapshot(url: str, dump: Path) -> Iterator[Iterator[Sequence[Any]]]:
    """Dumps the state; yields the id, size and MD5 of its object files.

    Raises BackupError if pg_dump is missing or fails, StateError if the database is unreachable.
    """
    program = _program("pg_dump")
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            # Rows are read in the transaction whose snapshot pg_dump uses.
            connection = connection.execution_options(
                isolation_level="REPEATABLE READ", stream_results=True
            )
            name = connection.scalar(text("SELECT pg_export_snapshot()"))
            schema = connection.scalar(text("SELECT current_schema()"))
            tables = f'--table="{schema}".*'
            _run(program, url, "--format=custom", f"--snapshot={name}", tables, f"--file={dump}")
            yield iter(connection.execute(_BLOBS))
    except DBAPIError as error:
        raise StateError(f"The state at {_shown(url)} cannot be read: {error.orig}") from error
    finally:
        database.close()


def is_empty(url: str) -> bool:
    """Tells whether the schema has no tables; raises StateError if the database is unreachable."""
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            query = "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema()"
            return connection.execute(text(query)).first() is None
    except DBAPIError as error:
        raise StateError(f"The state at {_shown(url)} cannot be opened: {error.orig}") from error
    finally:
        database.close()


def load_dump(url: str, dump: Path) -> None:
    """Loads a dump, all or nothing; raises BackupError if pg_restore is missing or fails."""
    _run(_program("pg_restore"), url, "--exit-on-error", "--single-transaction", str(dump))
    database = Database(url)
    try:
        with database.write() as connection:
            if connection.scalar(_HAS_EPOCHS) is not None:
                connection.execute(_RAISE_EPOCHS)
            for table in connection.scalars(_OF_CLUSTER).all():
                connection.execute(text(f"DELETE FROM {table}"))
    except DBAPIError as error:
        raise StateError(f"The state at {_shown(url)} cannot be written: {error.orig}") from error
    finally:
        database.close()


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BackupError(
            f"{name} is not installed, which a state in PostgreSQL needs: install PostgreSQL's "
            "client programs of at least the server's version."
        )
    return path


def _run(program: str, url: str, *arguments: str) -> None:
    parsed = make_url(url)
    command = [program, "--no-owner", "--no-privileges", f"--dbname={_libpq(parsed)}", *arguments]
    environment = dict(os.environ)
    if parsed.password is not None:
        environment["PGPASSWORD"] = str(parsed.password)  # other users can see command lines
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackupError(f"{Path(program).name} failed: {done.stderr.strip()}")


def _libpq(url: URL) -> str:
    plain = URL.create(
        "postgresql",
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=url.query,
    )
    return plain.render_as_string()


def _shown(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)
