"""Access to a port inside a container's network namespace, as an address of `http1`.

    container's namespace             machine
    :8080 ◄── hand_over.py ◄── unix ── gateway, agent: `handoff:/path`
      ▲                                   │
      └───────── the socket handed over ──┘

The launchers of all kinds call `open_handoff` with the container's PID.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

from sagehen.agent.launchers import hand_over
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.spawn import MainProcess, kill_group, read_report, watch_end

__all__ = ["CONTAINER_PORT", "Handoff", "open_handoff"]

log = logging.getLogger(__name__)

CONTAINER_PORT = 8080
"""where SageMaker's containers listen"""
BACKLOG = 512
JOIN_SECONDS = 30.0

_PROGRAM = (sys.executable, "-ISs", str(Path(hand_over.__file__)))


class Handoff:
    """A process in a container's network namespace that hands over connections to a port.

    It ends with the container, with this process, or by `close`.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], socket_path: Path, orphans: Orphans
    ) -> None:
        self.address = f"handoff:{socket_path}"
        self._socket_path = socket_path
        self._process = process
        self._ended = watch_end(MainProcess(process, orphans), lambda: None)

    async def close(self) -> None:
        """Connections that were handed over stay open."""
        if not self._ended.done():
            kill_group(self._process.pid)
            await asyncio.shield(self._ended)
        with contextlib.suppress(OSError):
            self._socket_path.unlink(missing_ok=True)


async def open_handoff(
    pid: int, socket_path: Path, orphans: Orphans, *, port: int = CONTAINER_PORT
) -> Handoff:
    """Makes `port` at 127.0.0.1 in the network namespace of `pid` reachable.

    Clients may connect as soon as this returns; they are refused while the container does not
    listen. It needs root, or that the namespace belongs to a user namespace of this user.

    Args:
        socket_path: created, for this user alone; one left behind is replaced.
        orphans: where the new process is registered.

    Raises:
        OSError: the process has ended, or its namespace may not be joined.
    """
    with _listen(socket_path) as listener:
        report, report_end = os.pipe2(os.O_CLOEXEC)
        try:
            process = _start(pid, listener.fileno(), report_end, port)
        except OSError:
            os.close(report)
            raise
        finally:
            os.close(report_end)
    orphans.expect(process.pid)
    try:
        handoff = Handoff(process, socket_path, orphans)
    except OSError:
        os.close(report)
        raise
    failure = bytearray()
    try:
        async with asyncio.timeout(JOIN_SECONDS):
            await read_report(report, failure)
    except BaseException:
        await handoff.close()
        raise
    if failure:
        await handoff.close()
        raise OSError(int(failure), os.strerror(int(failure)))
    return handoff


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno or errno.EIO, f"{path}: {error.strerror}") from error
    return listener


def _start(pid: int, listener: int, report: int, port: int) -> subprocess.Popen[bytes]:
    # In the event loop's thread, as `spawn` does: the kernel ends a child with that thread.
    arguments = (os.getpid(), report, listener, pid, port)
    return subprocess.Popen(
        [*_PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        pass_fds=(report, listener),
    )
