"""A way to a server that can be cut while the server, which others need, goes on."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Way"]

HOST = "127.0.0.1"


class Way:
    """A port of its own before the server's; close it at the end."""

    def __init__(self, port: int) -> None:
        self._target = (HOST, port)
        self._listener = socket.create_server((HOST, 0))
        self._ends: list[socket.socket] = []
        self._is_cut = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.was_tried = threading.Event()
        """Somebody came while it was cut."""
        self._start(self._accept)

    def cut(self) -> None:
        """End what is open; who comes is turned away."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                _end(end, socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        _end(self._listener, socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    near.close()
                    self.was_tried.set()
                    continue
                far = socket.create_connection(self._target)
                self._ends += (near, far)
            self._start(_carry, near, far)
            self._start(_carry, far, near)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    _end(sink, socket.SHUT_WR)


def _end(one: socket.socket, how: int) -> None:
    with suppress(OSError):  # The other side may have ended it.
        one.shutdown(how)
