"""What the start of every role has in common."""

import argparse
import asyncio
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvloop

from sagehen.base.handed_settings import take_over
from sagehen.base.home import Home
from sagehen.base.processes import die_with_parent
from sagehen.base.telemetry import configure_logging

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Start", "run", "serve_on", "start_role"]

GRACEFUL_SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 75


@dataclass(frozen=True)
class Start:
    """What the supervisor told this process."""

    settings: "Settings"
    home: Home
    sockets: tuple[socket.socket, ...]
    number: int
    """Which one it is of the processes of its role, from 0."""
    umask: int = -1
    """That of the server's user: containers have it, and what the server itself makes is for its
    user only. Negative where it is not known."""


def start_role(name: str) -> Start:
    """Tie this process to its supervisor, and read what it was given."""
    parser = argparse.ArgumentParser(prog=f"sagehen.app.roles.{name}")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--socket", type=int, action="append", default=[])
    parser.add_argument("--number", type=int)
    parser.add_argument("--umask", type=int, default=-1)
    given = parser.parse_args()
    die_with_parent(given.parent)
    # It stays open: what is opened next would have its number, and libuv aborts where it is to
    # close what has the number of a standard stream, at the end of the event loop.
    with open(0, "rb", closefd=False) as handed:
        settings = take_over(handed)
    own_name = name if given.number is None else f"{name}-{given.number}"
    configure_logging(settings.log_level, own_name)
    sockets = tuple(socket.socket(fileno=descriptor) for descriptor in given.socket)
    return Start(
        settings=settings,
        home=Home(settings.home),
        sockets=sockets,
        number=given.number or 0,
        umask=given.umask,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a role to its end on uvloop, and end the process."""
    uvloop.run(main)
    # All is closed: what Python would still take apart, module by module, takes longer than that.
    logging.shutdown()
    os._exit(0)


async def serve_on(path: Path, app: Any) -> None:
    """Serve `app` over HTTP on a Unix socket until SIGTERM."""
    import uvicorn  # gateways do without

    class Server(uvicorn.Server):
        """Waits to be told to end; uvicorn's own looks ten times a second whether it has been."""

        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self._loop = asyncio.get_running_loop()
            self._ending = asyncio.Event()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            self._loop.call_soon_threadsafe(self._ending.set)

        async def main_loop(self) -> None:
            await self.on_tick(0)
            await self._ending.wait()

    config = uvicorn.Config(
        app,
        uds=str(path),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    # When it has ended, uvicorn raises the signal that ended it once more: it is not to end this
    # process before that has ended what it runs.
    signal.signal(signal.SIGTERM, lambda *_: None)
    await Server(config).serve()
