"""Opens the state and gives out transactions."""

import logging
import secrets
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from sagehen.base.errors import CommitUnknown, SettingError, StateFull, Unavailable
from sagehen.base.extras import pip_install
from sagehen.state.commits import Commits
from sagehen.state.postgresql import (
    CONNECTION_BOUNDS,
    HUNG_TRANSACTION_SECONDS,
    Connector,
    replace_nul,
)

__all__ = ["Database", "FairLock", "describe_outage", "notify", "on_rollback"]

log = logging.getLogger(__name__)


def describe_outage(error: Exception) -> str:
    """Says that the state is away, and why, for those who may know the database's address; other
    errors than the database's speak for themselves."""
    if not isinstance(error, OperationalError):
        return str(error)
    reason = str(error.orig).strip().partition("\n")[0]
    return f"The state cannot be reached now: {reason}"


class FairLock:
    """A lock that goes to the longest waiting thread. Not reentrant."""

    def __init__(self, longest_wait_seconds: float) -> None:
        self._longest_wait_seconds = longest_wait_seconds
        self._lock = threading.Lock()
        self._is_locked = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Raises Unavailable after `longest_wait_seconds`."""
        self._take()
        try:
            yield
        finally:
            self._pass_on()

    def _take(self) -> None:
        with self._lock:
            if not self._is_locked:
                self._is_locked = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        if mine.wait(self._longest_wait_seconds):
            return
        with self._lock:
            if mine.is_set():
                return  # granted just now
            self._waiting.remove(mine)
        raise Unavailable(
            f"The state was busy with other writes for {self._longest_wait_seconds:g} seconds."
        )

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_locked = False


_LOCK_WAIT_SECONDS = 30
_NOTIFIED = "sagehen.notified"
_Notifications = set[tuple[str, str]]
"""channels and payloads"""

_UNDONE_SQLITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT)
"""errors of a commit that is undone. After a failed sync the log may hold all of it: then the next
start, if none wrote in between, finds it committed."""
_DAMAGED_SQLITE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_POSTGRES = ("XX001", "XX002")

FULL = "The disk that holds the state is full. Free some space, then try again."


class Database:
    """The state: SQLite in the home by default, or PostgreSQL."""

    def __init__(self, url: str, *, by_control: bool = False) -> None:
        """Opens lazily. `state.migrate` makes the tables.

        Args:
            url: for SQLAlchemy.
            by_control: hold leases by a file lock beside an SQLite state, without renewals; in
                PostgreSQL, bound how long a hung process keeps rows locked, and how long a
                statement waits for its answer.
        Raises:
            SettingError: the URL is malformed, of an unsupported database, or lacks its driver.
        """
        self.engine: Engine = _make_engine(url)
        self._sqlite = self.engine.dialect.name == "sqlite"
        self._by_control = by_control
        self.session = "" if self._sqlite else f"sagehen-{secrets.token_hex(8)}"
        """the name of this object's sessions in PostgreSQL"""
        self._apart: Engine | None = None
        self._connector = Connector()
        self.commits = Commits(self._file)
        if self._sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
        else:
            self._bound_postgresql(self.engine, self._connector.connect)
        # SQLite's waiting writers only poll: a busy writer would make them wait for seconds.
        self._turns = FairLock(_LOCK_WAIT_SECONDS) if self._sqlite else None
        self._listeners: list[tuple[str, Callable[[str], None]]] = []
        self.forward: Callable[[str, str], None] = lambda channel, payload: None
        """gets each notification of this process, from any thread"""
        self.damage: str | None = None
        """damage found by a statement, as a sentence"""
        event.listen(self.engine, "handle_error", self._note_damage)

    def listen(self, channel: str, listener: Callable[[str], None]) -> None:
        """Calls `listener` with each payload for `channel`, after a commit by this object.

        Runs in the committing thread; it must be quick and not raise.
        """
        self._listeners.append((channel, listener))

    def _connect(self) -> Connection:
        try:
            return self.engine.connect()
        except PoolTimeout as error:
            raise Unavailable("All connections to the database are in use.") from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._connect() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN")
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Opens a transaction: on disk when the block ends, undone when it raises.

        What it raises says what became of the writes; `on_rollback` acts on it:

        - CommitUnknown, or what is no Exception, as KeyboardInterrupt: nobody knows. Nothing may be
          removed that the writes may name, neither the new nor what they replace.
        - any other Exception: certainly nothing was committed.

        Nothing that follows the commit raises.

        Raises:
            CommitUnknown: the answer to the commit was lost.
            StateFull: the disk is full.
            Unavailable: other writes of this process took too long.
        """
        turn = self._turns.turn() if self._turns else nullcontext()
        with turn, self._transaction() as (connection, notified):
            yield connection
        self._deliver(notified)

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Connection, _Notifications]]:
        with self._connect() as connection:
            notified: _Notifications = set()
            connection.info[_NOTIFIED] = notified
            if self._sqlite:
                # Lock at once: an upgrade from a read lock can fail with SQLITE_BUSY despite the
                # time-out.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            # What raises closes the connection, which rolls back.
            with _telling_when_full():
                yield connection, notified
                _commit(connection)

    def connect_apart(self) -> Connection:
        """Opens a connection to keep: outside the pool, which may be used up, and in autocommit."""
        if self._apart is None:
            self._apart = create_engine(self.engine.url, poolclass=NullPool)
            self._bound_postgresql(self._apart, self._connector.connect_patiently)
        return self._apart.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _bound_postgresql(self, engine: Engine, connect: Callable[..., Any]) -> None:
        if self._by_control:
            event.listen(engine, "do_connect", connect)
        event.listen(engine, "connect", self._prepare_postgresql)

    def _prepare_postgresql(self, connection: Any, _record: object) -> None:
        replace_nul(connection)
        connection.execute(f"SET application_name = '{self.session}'")
        if self._by_control:
            # A process or machine that hangs within a transaction must not keep its locks.
            seconds = HUNG_TRANSACTION_SECONDS
            connection.execute(f"SET idle_in_transaction_session_timeout = '{seconds}s'")
        connection.commit()

    def _note_damage(self, context: ExceptionContext) -> None:
        error = context.original_exception
        code = getattr(error, "sqlite_errorcode", None)
        in_sqlite = code is not None and code & 0xFF in _DAMAGED_SQLITE
        if in_sqlite or getattr(error, "sqlstate", None) in _DAMAGED_POSTGRES:
            self.damage = (
                f"The state is damaged ({error}). Stop the server and restore a backup with "
                "`sagehen restore BACKUP --home HOME --replace`."
            )

    def _deliver(self, notified: _Notifications) -> None:
        for channel, payload in notified:
            try:
                self.announce(channel, payload)
            except Exception:
                # The transaction is on disk; loops look again without a notification, only later.
                log.exception("A notification was lost.", extra={"action": "notify"})

    def announce(self, channel: str, payload: str = "") -> None:
        """Sends `payload` to the listeners of `channel`, also of other controls if it can."""
        self.tell(channel, payload)
        self.forward(channel, payload)

    def tell(self, channel: str, payload: str) -> None:
        """Sends `payload` to the listeners in this process."""
        for listened_channel, listener in self._listeners:
            if listened_channel == channel:
                listener(payload)

    @property
    def is_shared(self) -> bool:
        """Several machines may use the state: it is in PostgreSQL."""
        return not self._sqlite

    @property
    def _file(self) -> Path | None:
        name = self.engine.url.database
        return Path(name) if self._sqlite and name and name != ":memory:" else None

    def lease_lock(self, name: str) -> Path | None:
        """Returns the file to lock for a lease; None where rows alone decide. Users of PostgreSQL
        may be on several machines."""
        file = self._file if self._by_control else None
        if file is None:
            return None
        file = file.resolve()  # one lock, whichever link is used
        return file.with_name(f"{file.name}-lease-{name}")

    def close(self) -> None:
        self.commits.close()
        self.engine.dispose()


@contextmanager
def on_rollback(clean_up: Callable[[], object]) -> Iterator[None]:
    """Calls `clean_up` if the block, which ends with a write transaction, raises and has certainly
    committed nothing; else what was made for the transaction is left to a sweep."""
    try:
        yield
    except CommitUnknown:
        raise
    except Exception:
        try:
            clean_up()
        except Exception:
            log.exception("What a failed write has left stays.", extra={"action": "clean_up"})
        raise


def notify(connection: Connection, channel: str, payload: str = "") -> None:
    """Sends `payload` to the listeners of `channel` after the commit.

    Only a hint; lost if the process dies.
    """
    notified: _Notifications | None = connection.info.get(_NOTIFIED)
    if notified is not None:
        notified.add((channel, payload))


def _commit(connection: Connection) -> None:
    """Raises as `Database.write` does."""
    try:
        connection.commit()
    except Exception as error:
        # SQLAlchemy does not roll back after a failed commit.
        connection.invalidate()
        if _is_rolled_back(error):
            raise
        raise CommitUnknown(
            "The connection to the database was lost during a commit: the change may have been "
            "made or not. Look, or try again."
        ) from error


def _is_rolled_back(error: Exception) -> bool:
    """Whether the database has answered a commit, and that it did not take place."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _UNDONE_SQLITE
    return getattr(error.orig, "sqlstate", None) is not None


@contextmanager
def _telling_when_full() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if "disk is full" not in str(error.orig):
            raise
        raise StateFull(FULL) from error


def _make_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise SettingError("database_url is not a SQLAlchemy URL.") from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise SettingError(
            f"database_url is of {parsed.get_backend_name()}; Sagehen keeps its state in sqlite or "
            "postgresql."
        )
    is_remote = parsed.get_backend_name() != "sqlite"
    if is_remote:
        parsed = parsed.set(query={**CONNECTION_BOUNDS, **parsed.query})
    try:
        return create_engine(parsed, pool_pre_ping=is_remote)
    except ImportError as error:
        raise SettingError(
            f"database_url needs {error.name}. In the Python environment that Sagehen runs in: "
            f"{pip_install('postgres')}"
        ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Otherwise the driver begins transactions itself, and never for reads.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_SECONDS * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # FULL: commits survive a power failure, not only the end of the process.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
