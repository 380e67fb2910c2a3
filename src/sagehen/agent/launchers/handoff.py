"""Access to a port inside a container's network namespace, as an address of `http1`.

    container's namespace             machine
    :8080 ◄── hand_over.py ◄── unix ── gateway, agent: `handoff:/path`
      ▲                                   │
      └───────── the socket handed over ──┘

The docker launcher calls `open_handoff` with the container's PID; so does the other for a second
port of a container. The first one's process is forked by `become_container`.
"""

import contextlib
import errno
import socket
from pathlib import Path

from sagehen.agent.launchers import hand_over
from sagehen.agent.launchers.helper_process import HelperProcess, start_helper
from sagehen.agent.launchers.orphans import Orphans

__all__ = ["CONTAINER_PORT", "Handoff", "listen_at", "open_handoff"]

CONTAINER_PORT = 8080
"""where SageMaker's containers listen"""
BACKLOG = 512

_PROGRAM = Path(hand_over.__file__)


class Handoff:
    """A process in a container's network namespace that hands over connections to a port.

    It ends with the container, with this process, or by `close`.
    """

    def __init__(self, helper: HelperProcess, socket_path: Path) -> None:
        self.address = f"handoff:{socket_path}"
        self.helper = helper
        self._socket_path = socket_path

    async def close(self) -> None:
        """Connections that were handed over stay open."""
        await self.helper.close()
        _remove(self._socket_path)


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
    with listen_at(socket_path) as listener:
        arguments = (listener.fileno(), pid, port)
        try:
            helper = await start_helper(_PROGRAM, arguments, [listener.fileno()], orphans)
        except BaseException:
            _remove(socket_path)
            raise
    return Handoff(helper, socket_path)


def _remove(socket_path: Path) -> None:
    with contextlib.suppress(OSError):
        socket_path.unlink(missing_ok=True)


def listen_at(path: Path) -> socket.socket:
    """Listens for clients of this user alone; a socket left behind is replaced. Raises OSError."""
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
