"""A proxy before PostgreSQL that loses what a network can lose."""

import contextlib
import select
import socket
import threading
from pathlib import Path

from sqlalchemy import make_url

__all__ = ["PostgresProxy"]

PIECE_BYTES = 2**16
COMMIT = b"COMMIT\0"
"""as a statement alone: `READ COMMITTED` is part of others"""


class PostgresProxy:
    """Forwards TCP connections to a PostgreSQL that listens in a folder; use it in a `with` block.

    Args:
        url: of the server, as of `running_postgres`.
    """

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._target = str(Path(str(parsed.query["host"])) / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{parsed.username}@127.0.0.1:{port}/{parsed.database}"
        self.cuts_commits = False
        """Each COMMIT is forwarded, and its answer is lost with the connection."""
        self.is_silent = False
        """Connections stay open, and nothing is forwarded."""
        self.cuts = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "PostgresProxy":
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in (self._listener, *self._sockets):
            _close(one)
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._sockets += [client, server]
                self._start(self._forward, client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(PIECE_BYTES)
                    if not data:
                        raise ConnectionError
                    if self.is_silent:
                        continue
                    (server if source is client else client).sendall(data)
                    if source is client and self.cuts_commits and COMMIT in data:
                        server.recv(PIECE_BYTES)  # The answer: it is committed.
                        self.cuts += 1
                        raise ConnectionError
        _close(client)
        _close(server)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
