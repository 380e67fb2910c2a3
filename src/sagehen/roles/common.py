"""What the start of every role has in common."""

import argparse
import logging
import os
import pickle
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from sagehen.home import Home
from sagehen.processes import die_with_parent
from sagehen.settings import Settings
from sagehen.telemetry import configure_logging

__all__ = ["Start", "run", "serve_on", "start_role"]

GRACEFUL_SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 75


@dataclass(frozen=True)
class Start:
    """What the supervisor told this process."""

    settings: Settings
    home: Home
    sockets: tuple[socket.socket, ...]
    number: int
    """Which one it is of the processes of its role, from 0."""
    umask: int = -1
    """That of the server's user: containers have it, and what the server itself makes is for its
    user only. Negative where it is not known."""


def start_role(name: str) -> Start:
    """Tie this process to its supervisor, and read what it was given."""
    parser = argparse.ArgumentParser(prog=f"sagehen.roles.{name}")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--socket", type=int, action="append", default=[])
    parser.add_argument("--number", type=int)
    parser.add_argument("--umask", type=int, default=-1)
    given = parser.parse_args()
    die_with_parent(given.parent)
    # It stays open: what is opened next would have its number, and libuv aborts where it is to
    # close what has the number of a standard stream, at the end of the event loop.
    with open(0, "rb", closefd=False) as handed:
        settings: Settings = pickle.load(handed)
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
    await uvicorn.Server(config).serve()
