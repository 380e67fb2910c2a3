"""A program that hands over TCP connections to a port inside another process's network namespace.

    python -ISs hand_over.py AGENT_PID REPORT_FD LISTENER_FD TARGET_PID PORT

It joins the namespace of TARGET_PID, then answers each connection to the Unix socket LISTENER_FD as
`sagehen.http1.handoff` says. It ends with the target and with the agent. On failure to join, the
errno is written to REPORT_FD; success closes it.

It is a process, as only a process with one thread may join a user namespace. Each container may
have one, so like `become_container` it imports only C modules. Of a container that is a process of
ours, it is no program: `become_container` forks it in the namespace, and it calls `serve`.
"""

import _ctypes
import _signal  # type: ignore[import-not-found]
import _socket
import errno
import posix
import select
import sys
import time

__all__ = ["serve"]

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_HOST = "127.0.0.1"
_PORT = 8080
"""where SageMaker's containers listen"""
_CONNECT_SECONDS = 5.0
"""as the pool of connections in http1: later, nobody waits"""
_MAX_PENDING = 200
"""connections in the making; more wait in the listener's backlog"""
_FULL_SECONDS = 0.1
"""until the next try when all descriptors of the process or machine are in use"""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    """A C function, as of `ctypes.CDLL(None, use_errno=True)`."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_PRCTL, _SETNS = (_Function(_ctypes.dlsym(_LIBC, name)) for name in ("prctl", "setns"))


class _Connecting:
    """A client, and the connection that is being made for it."""

    def __init__(self, client: _socket.socket, inside: _socket.socket) -> None:
        self.client = client
        self.inside = inside
        self.deadline = time.monotonic() + _CONNECT_SECONDS


class _Server:
    """Answers clients; never blocks but in its one `poll`."""

    def __init__(self, listener: int, target: int | None, port: int) -> None:
        self._listener = _socket.socket(fileno=listener)
        self._listener.setblocking(False)
        self._target = target
        self._port = port
        self._poll = select.epoll()
        if target is not None:
            self._poll.register(target, select.EPOLLIN)
        self._accepting = False
        self._pending: dict[int, _Connecting] = {}
        """by descriptor of `inside`, the oldest first"""
        self._full_until = 0.0

    def run(self) -> None:
        """Returns when the target has ended."""
        while True:
            self._listen_if_free()
            ready = [descriptor for descriptor, _ in self._poll.poll(self._patience())]
            if self._target in ready:
                return
            for descriptor in ready:
                if descriptor in self._pending:
                    self._connected(descriptor)
            # Last: new connections may have the numbers of those that have just ended.
            if self._accepting and self._listener.fileno() in ready:
                self._accept()
            self._give_up_late()

    def _listen_if_free(self) -> None:
        free = len(self._pending) < _MAX_PENDING and time.monotonic() >= self._full_until
        if free and not self._accepting:
            self._poll.register(self._listener.fileno(), select.EPOLLIN)
        elif self._accepting and not free:
            self._poll.unregister(self._listener.fileno())
        self._accepting = free

    def _patience(self) -> float | None:
        """Seconds until something is to be done without an event."""
        times = [connecting.deadline for connecting in self._pending.values()][:1]
        if not self._accepting and len(self._pending) < _MAX_PENDING:
            times.append(self._full_until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _accept(self) -> None:
        while len(self._pending) < _MAX_PENDING:
            try:
                client = _socket.socket(fileno=self._listener._accept()[0])  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError as error:
                self._note_full(error)
                return
            self._connect(client)

    def _connect(self, client: _socket.socket) -> None:
        client.setblocking(False)
        try:
            inside = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        except OSError as error:
            self._note_full(error)
            _answer(client, error.errno or errno.EIO)
            return
        inside.setblocking(False)
        number = inside.connect_ex((_HOST, self._port))
        if number == errno.EINPROGRESS:
            # The backlog of the container is full.
            self._pending[inside.fileno()] = _Connecting(client, inside)
            self._poll.register(inside.fileno(), select.EPOLLOUT)
            return
        _answer(client, number, inside)

    def _connected(self, descriptor: int) -> None:
        number = self._pending[descriptor].inside.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        self._end(descriptor, number)

    def _give_up_late(self) -> None:
        now = time.monotonic()
        for descriptor, connecting in list(self._pending.items()):
            if connecting.deadline > now:
                return
            self._end(descriptor, errno.ETIMEDOUT)

    def _end(self, descriptor: int, number: int) -> None:
        self._poll.unregister(descriptor)
        connecting = self._pending.pop(descriptor)
        _answer(connecting.client, number, connecting.inside)

    def _note_full(self, error: OSError) -> None:
        if error.errno in _FULL:
            self._full_until = time.monotonic() + _FULL_SECONDS


def _answer(client: _socket.socket, number: int, inside: _socket.socket | None = None) -> None:
    """Answers and closes both: an open copy here would keep the connection open."""
    controls = []
    if number == 0 and inside is not None:
        rights = inside.fileno().to_bytes(4, sys.byteorder)
        controls = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
    try:
        client.sendmsg([number.to_bytes(4, "little")], controls)
    except OSError:
        pass  # the client has gone
    finally:
        client.close()
        if inside is not None:
            inside.close()


def serve(listener: int) -> None:
    """Serves a container in this network namespace; never returns."""
    _Server(listener, None, _PORT).run()


def _join(target: int) -> None:
    if _SETNS(target, _CLONE_NEWNET) == 0:
        return
    # Without rights on the machine: those of the user namespace's owner.
    if _SETNS(target, _CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number))


def _main(agent_pid: int, report: int, listener: int, target_pid: int, port: int) -> None:
    try:
        target = posix.pidfd_open(target_pid)
        _join(target)
        # Only now: a change of credentials resets both. The container must not trace a process that
        # has rights in its namespace.
        _PRCTL(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        _PRCTL(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if posix.getppid() != agent_pid:
            return  # the agent has died: no signal would come
        server = _Server(listener, target, port)
    except OSError as error:
        posix.write(report, str(error.errno).encode())
        return
    posix.close(report)
    server.run()


if __name__ == "__main__":
    for _number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(_number, _signal.SIG_IGN)  # for the agent, which ends it
    _main(*map(int, sys.argv[1:6]))
