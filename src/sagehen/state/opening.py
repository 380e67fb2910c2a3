"""Checks, migrates and pairs the state at a start; changes nothing before all checks."""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from sagehen.base.errors import SettingError, StateError
from sagehen.base.settings import Settings
from sagehen.state.pairing import Query, adopt, check_pair, pair
from sagehen.state.revision import is_up_to_date, make_state

__all__ = ["adopt_state", "check_whole", "open_state", "querying", "sqlite_file", "state_name"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""seconds; enough for some gigabytes"""
_STEPS_BETWEEN_LOOKS = 100_000
_BUSY_SECONDS = 30.0
_PRIVATE = 0o600


def open_state(settings: Settings) -> None:
    """Blocks.

    Raises:
        SettingError: `database_url` names an unsupported database.
        StateError: damaged, too new, not reachable, or not paired; says what to do.
    """
    file = sqlite_file(settings)
    if file is not None:
        _check_file(file)
    with querying(settings) as (query, tables):
        remote = settings.object_store_url is not None
        check_pair(query, tables, _objects(settings), state_name(settings), remote=remote)
    _upgrade(settings, file)
    with querying(settings, changing=True) as (query, _):
        pair(query, _objects(settings))


def adopt_state(settings: Settings) -> tuple[int, int]:
    """Pairs the state and the home's objects without a check; otherwise like `open_state`.

    Returns the numbers of files without a row and of rows without a file.
    """
    file = sqlite_file(settings)
    if file is not None:
        _check_file(file)
    _upgrade(settings, file)
    with querying(settings, changing=True) as (query, _):
        return adopt(query, _objects(settings))


def sqlite_file(settings: Settings) -> Path | None:
    """Returns None for PostgreSQL; raises SettingError where SQLite's URL names no file."""
    url = settings.state_url
    if settings.database_url is None:
        return Path(unquote(url.removeprefix("sqlite:///")))
    if not url.startswith("sqlite"):
        return None
    from sqlalchemy import make_url  # not needed for the default URL
    from sqlalchemy.exc import ArgumentError

    try:
        name = make_url(url).database
    except ArgumentError as error:
        raise SettingError("database_url is not a SQLAlchemy URL.") from error
    if not name or name == ":memory:" or name.startswith("file:"):
        raise SettingError("database_url names no file: sqlite:////path/of/state.db does.")
    return Path(name)


def state_name(settings: Settings) -> str:
    """Returns the state's address without a password."""
    file = sqlite_file(settings)
    if file is not None:
        return str(file)
    from sqlalchemy import make_url

    return make_url(settings.state_url).render_as_string(hide_password=True)


def _check_file(file: Path) -> None:
    make_private(file)
    _refuse_lone_log(file)
    check_whole(file)


def _refuse_lone_log(file: Path) -> None:
    """Raises StateError for a log without its state: SQLite would delete it, with the
    last writes."""
    file = file.resolve()  # SQLite puts the log beside a link's target
    log_file = file.with_name(f"{file.name}-wal")
    if not _size_of(file) and _size_of(log_file):
        raise StateError(
            f"The state {file} is {'empty' if file.exists() else 'missing'}, but its log "
            f"{log_file} is there. Nothing was changed. Put the state back beside its log; or, if "
            "a new state is to take its place, move the log away."
        )


def _size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def make_private(file: Path) -> None:
    """Makes the state private; SQLite's side files get the mode of the state."""
    for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))):
        try:
            if path.is_file() and path.stat().st_mode & 0o077:
                path.chmod(_PRIVATE)
        except OSError as error:
            log.warning("Other users may be able to read %s: %s.", path, error.strerror)


def check_whole(file: Path, seconds: float = CHECK_SECONDS) -> None:
    """Raises StateError for damage found within `seconds`."""
    if not file.exists():
        return
    try:
        with closing(_connect(file)) as state:
            _give_up_after(state, seconds)
            ((check_result,),) = state.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            log.info("%s is so large that only its first part was checked for damage.", file)
            return
        if isinstance(error, sqlite3.OperationalError):
            raise StateError(f"The state {file} cannot be opened: {error}.") from error
        check_result = str(error)
    if check_result != "ok":
        raise StateError(
            f"The state {file} is damaged ({' '.join(check_result.split())}). Nothing was changed. "
            "Restore a backup with `sagehen restore BACKUP --home HOME --replace`: it keeps the "
            "damaged state aside. Without a backup, move the state away and run `sagehen adopt`: "
            "an empty one then takes its place."
        )


@contextlib.contextmanager
def querying(settings: Settings, changing: bool = False) -> Iterator[tuple[Query, set[str]]]:
    """Yields a function for SQL, one transaction per statement, and the table names. Creates no
    SQLite file. Raises StateError."""
    file = sqlite_file(settings)
    opened = _querying_file(file, changing) if file is not None else _querying_server(settings)
    with opened as query:
        yield query, {str(name) for (name,) in query(_FILE_TABLES if file else _SERVER_TABLES)}


_FILE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_SERVER_TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
)


@contextlib.contextmanager
def _querying_file(file: Path, changing: bool) -> Iterator[Query]:
    try:
        exists = file.exists()
        with closing(_connect(file, changing) if exists else sqlite3.connect(":memory:")) as state:
            yield lambda sql: state.execute(sql).fetchall()
    except sqlite3.Error as error:
        raise StateError(f"The state {file} cannot be read: {error}.") from error


@contextlib.contextmanager
def _querying_server(settings: Settings) -> Iterator[Query]:
    from sqlalchemy.exc import DBAPIError

    from sagehen.state.database import Database

    database = Database(settings.state_url)
    try:
        with database.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")

            def query(sql: str) -> Sequence[Sequence[Any]]:
                result = connection.exec_driver_sql(sql)
                return result.fetchall() if result.returns_rows else []

            yield query
    except DBAPIError as error:
        where = state_name(settings)
        raise StateError(f"The state at {where} cannot be opened: {error.orig}") from error
    finally:
        database.close()


def _connect(file: Path, changing: bool = False) -> sqlite3.Connection:
    # Read-only mode creates nothing and does not write the log back.
    mode = "rw" if changing else "ro"
    state = sqlite3.connect(f"file:{quote(str(file))}?mode={mode}", uri=True, timeout=_BUSY_SECONDS)
    state.isolation_level = None
    return state


def _give_up_after(state: sqlite3.Connection, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    state.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)


def _upgrade(settings: Settings, file: Path | None) -> None:
    if (
        settings.database_url is None
        and file is not None
        and (is_up_to_date(file) or make_state(file))
    ):
        return
    from sagehen.state.migrate import upgrade

    upgrade(settings.state_url)
    if file is not None:
        make_private(file)


def _objects(settings: Settings) -> Path:
    return settings.home / "objects"
