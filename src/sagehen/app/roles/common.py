"""Starts a role's process; shared by every role."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

import uvloop

from sagehen.base.cluster_certificates import PEER_CERTIFICATE
from sagehen.base.home import Home
from sagehen.base.pickled_settings import unpickle_settings
from sagehen.base.processes import die_with_parent
from sagehen.base.telemetry import configure_logging

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Start", "end_after_error", "run", "serve_on", "serving_tls", "start_role"]

log = logging.getLogger(__name__)

GRACEFUL_SHUTDOWN_SECONDS = 10
KEEP_ALIVE_SECONDS = 75


@dataclass(frozen=True)
class Start:
    """The settings, home and sockets that the supervisor passed to this process."""

    settings: "Settings"
    home: Home
    sockets: tuple[socket.socket, ...]
    number: int
    """from 0, among the role's processes"""
    umask: int = -1
    """the user's, for containers; negative if unknown"""


def start_role(name: str) -> Start:
    """Ties the process to its supervisor and reads its settings."""
    parser = argparse.ArgumentParser(prog=f"sagehen.app.roles.{name}")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--socket", type=int, action="append", default=[])
    parser.add_argument("--number", type=int)
    parser.add_argument("--umask", type=int, default=-1)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    # Keep descriptor 0 open: libuv aborts when it closes another file that got a standard stream's
    # number.
    with open(0, "rb", closefd=False) as stream:
        settings = unpickle_settings(stream)
    own_name = name if arguments.number is None else f"{name}-{arguments.number}"
    configure_logging(settings.log_level, own_name)
    sockets = tuple(socket.socket(fileno=descriptor) for descriptor in arguments.socket)
    return Start(
        settings=settings,
        home=Home(settings.home),
        sockets=sockets,
        number=arguments.number or 0,
        umask=arguments.umask,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a role on uvloop, then ends the process."""
    uvloop.run(main)
    # Python's own teardown is slow.
    logging.shutdown()
    os._exit(0)


def end_after_error(task: asyncio.Task[None]) -> None:
    """A task's callback: ends this process as SIGTERM does, if the task has failed. The supervisor
    starts the process again."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("This process ends: %s", error, extra={"action": "end"})
        os.kill(os.getpid(), signal.SIGTERM)


async def serve_on(path: Path, app: Any) -> None:
    """Serves `app` on a Unix socket until SIGTERM."""
    # uvicorn raises its signal again, which must not end this process before its cleanup.
    signal.signal(signal.SIGTERM, lambda *_: None)
    await _make_server(app, uds=str(path)).serve()


@asynccontextmanager
async def serving_tls(
    listener: socket.socket,
    context: ssl.SSLContext,
    app: Any,
    other_protocols: Mapping[str, Callable[[], asyncio.Protocol]] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Serves `app` to members of the cluster until the block ends. The state of each request's
    scope has the client's certificate, as PEER_CERTIFICATE.

    `other_protocols`: for clients that ask for another protocol than HTTP, by its name (ALPN).
    """
    server = _make_server(app)
    server.config.load()
    if other_protocols:
        context.set_alpn_protocols([*other_protocols, "http/1.1"])
    server.config.http_protocol_class = _choosing(
        server.config.http_protocol_class, other_protocols
    )
    server.config.ssl = context
    serving = asyncio.create_task(server._serve([listener]))  # `serve` would take the signals
    try:
        yield
    finally:
        # Long polls would last; control repeats what it has no answer to.
        server.force_exit = True
        server.end()
        await serving


def _choosing(http: Any, others: Mapping[str, Callable[[], asyncio.Protocol]]) -> Any:
    """Returns uvicorn's protocol, which leaves some connections to others, and keeps the client's
    certificate for the rest."""

    class ChosenProtocol(http):  # type: ignore[misc]
        app_state: dict[str, Any]

        def connection_made(self, transport: asyncio.Transport) -> None:
            name = transport.get_extra_info("ssl_object").selected_alpn_protocol()
            if name not in others:
                certificate = transport.get_extra_info("peercert")
                self.app_state = {**self.app_state, PEER_CERTIFICATE: certificate}
                super().connection_made(transport)
                return
            other = others[name]()
            transport.set_protocol(other)
            other.connection_made(transport)

    return ChosenProtocol


def _make_server(app: Any, uds: str | None = None) -> Any:
    import uvicorn  # gateways do without

    class Server(uvicorn.Server):
        """Waits for an event; uvicorn's own loop polls ten times a second."""

        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self._loop = asyncio.get_running_loop()
            self._ending = asyncio.Event()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            self._loop.call_soon_threadsafe(self._ending.set)

        def end(self) -> None:
            self._ending.set()

        async def main_loop(self) -> None:
            await self.on_tick(0)
            await self._ending.wait()

    config = uvicorn.Config(
        app,
        uds=uds,
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
    return Server(config)
