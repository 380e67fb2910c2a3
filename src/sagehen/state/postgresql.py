"""Connections to PostgreSQL, the only module that imports its driver."""

import threading
import time
from collections.abc import Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["CONNECTION_BOUNDS", "HUNG_TRANSACTION_SECONDS", "Connector", "replace_nul"]

CONNECTION_BOUNDS = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""for libpq, in seconds and, the last one, milliseconds. By default a connection to a machine that
lost its power or network is waited for, for a quarter of an hour."""
HUNG_TRANSACTION_SECONDS = 10
"""after which PostgreSQL ends a control's transaction that sends nothing"""
ANSWER_SECONDS = 20.0
"""for a statement of a control. A proxy or a frozen server keeps a connection alive for TCP, and
never answers. Longer than a hung transaction of another control may keep a row locked."""
SILENT_CONNECT_SECONDS = 2
"""the least that the driver takes"""


class Connector:
    """Opens a control's connections, on SQLAlchemy's event `do_connect`.

    No statement waits for its answer for more than ANSWER_SECONDS: it then fails as if the
    connection had been lost. While the database is silent, most connections fail at once, as many
    waits, one after another, would have no bound.
    """

    def __init__(self) -> None:
        self._is_silent = False
        self._next_attempt = 0.0
        """seconds, monotonic; of `connect` while the database is silent"""
        self._lock = threading.Lock()

    def connect(
        self, dialect: object, record: object, arguments: Any, parameters: Any
    ) -> "Connection[Any]":
        if not self._is_silent:
            return self.connect_patiently(dialect, record, arguments, parameters)
        with self._lock:
            now = time.monotonic()
            if now < self._next_attempt:
                raise _no_answer()
            self._next_attempt = now + 2 * SILENT_CONNECT_SECONDS
        short = {**parameters, "connect_timeout": SILENT_CONNECT_SECONDS}
        return self.connect_patiently(dialect, record, arguments, short)

    def connect_patiently(
        self, _dialect: object, _record: object, arguments: Any, parameters: Any
    ) -> "Connection[Any]":
        """For a connection of its own, whose user may find out that the database answers again."""
        from psycopg.errors import ConnectionTimeout

        try:
            connection = self._connections.connect(*arguments, **parameters)
        except ConnectionTimeout:
            self._is_silent = True
            raise
        self._is_silent = False
        return connection

    @cached_property
    def _connections(self) -> "type[Connection[Any]]":
        from psycopg import Connection

        connector = self

        class BoundedConnection(Connection[Any]):
            def wait(self, gen: Any, *arguments: Any, **keywords: Any) -> Any:
                return super().wait(self._bounded(gen), *arguments, **keywords)

            def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
                """Passes the driver's steps on. The driver resumes with 0 when it has waited for
                some time and nothing has arrived."""
                deadline = time.monotonic() + ANSWER_SECONDS
                try:
                    events = next(steps)
                    while True:
                        ready = yield events
                        if not ready and time.monotonic() >= deadline:
                            connector._is_silent = True
                            self.pgconn.finish()
                            raise _no_answer()
                        events = steps.send(ready)
                except StopIteration as end:
                    return end.value

        return BoundedConnection


def _no_answer() -> Exception:
    from psycopg import OperationalError

    return OperationalError("The database does not answer.")


def replace_nul(connection: Any) -> None:
    """Has NUL written as U+FFFD. Text of PostgreSQL holds none, and what a failing user's code says
    may: the loop that stores it would never get past it."""
    from psycopg.types.string import StrDumperUnknown

    class TextDumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\x00", "\ufffd") if "\x00" in obj else obj)

    connection.adapters.register_dumper(str, TextDumper)
