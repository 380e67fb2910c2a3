"""Runs a whole server: locks the home, reserves the port, starts the roles."""

import asyncio
import os
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sagehen.app.cluster import NodeSetup, join_as_server, own_host, prepare_node
from sagehen.app.leaving import leave_cluster
from sagehen.app.reloading import changed_settings
from sagehen.app.supervisor import Role, Supervisor
from sagehen.base.address import client_url, reachable_urls
from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.credentials import Credentials, load_credentials, make_credentials, make_token
from sagehen.base.errors import Unavailable
from sagehen.base.extras import require_library
from sagehen.base.home import Home, keeping_private, lock_id, locked, prepare_home
from sagehen.base.settings import Settings
from sagehen.frame.arns import partition_of
from sagehen.gateway.routing.inflight import clear_row, create_inflight_table
from sagehen.state.opening import open_state, sqlite_file

__all__ = [
    "RunningServer",
    "choose_partition",
    "client_url",
    "home_vanished",
    "listening",
    "make_agent",
    "make_gateways",
    "running_server",
]

READY_TIMEOUT_SECONDS = 60.0
_READY_POLL_SECONDS = 0.03
_REPORT_SECONDS = 5.0
"""between progress reports"""
_DEATHS_BEFORE_READY = 3
_LISTEN_BACKLOG = 4096


WATCH_HOME_SECONDS = 3.0


@dataclass(frozen=True)
class RunningServer:
    """The URL, home, keys and settings of a running server."""

    url: str
    reachable: Sequence[str]
    """for other machines; empty if the server is only local"""
    home: Home
    credentials: Credentials
    settings: Settings
    reload: Callable[[Settings], tuple[list[str], list[str]]]
    """Has settings take effect; returns those that do, and those that need a new start."""


@asynccontextmanager
async def running_server(
    settings: Settings, clock: Clock = SYSTEM, report: Callable[[str], None] = lambda step: None
) -> AsyncIterator[RunningServer]:
    """Starts a server, and stops it when the block ends; `report` takes progress messages.

    Raises:
        SettingError: the state or object store cannot be opened.
        StateError: the state is damaged or belongs to other objects.
        HomeError: the home is unusable or in use.
        Unavailable: the port is taken or a process does not start.
    """
    _check_object_store(settings)
    home = prepare_home(settings.home)
    with (
        keeping_private() as umask,
        locked(home),
        listening(settings) as listeners,
        ExitStack() as stack,
    ):
        # The old instances are gone, and another server may serve the endpoints.
        home.routes.unlink(missing_ok=True)
        await asyncio.to_thread(open_state, settings)
        port = listeners[0].getsockname()[1]
        node = stack.enter_context(await asyncio.to_thread(_node_of, settings, home, port))
        credentials = await asyncio.to_thread(_make_keys, settings, home, report)
        url = client_url(settings.host, port)
        create_inflight_table(home.inflight_table, len(listeners))
        doors = (node.control_listener,) if node and node.control_listener else ()
        control = Role("control", forewarned=True, sockets=doors)
        roles = (*make_gateways(home, listeners, node), control, *_ray(settings), make_agent(node))
        partition = await asyncio.to_thread(choose_partition, settings)
        chosen = {"port": port, "gateways": len(listeners), "partition": partition}
        process_settings = settings.model_copy(update=chosen)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        supervisor = Supervisor(roles, process_settings, environment, clock, umask)

        def reload(new: Settings) -> tuple[list[str], list[str]]:
            nonlocal process_settings
            before = process_settings.model_copy(
                update={name: getattr(settings, name) for name in chosen}
            )
            taken, rest = changed_settings(before, new)
            if taken:
                update = {name: getattr(new, name) for name in taken}
                process_settings = process_settings.model_copy(update=update)
                supervisor.restart("control", process_settings)
            return taken, rest

        try:
            await supervisor.start()
            await _wait_until_ready(url, supervisor, home, clock, report)
            reachable = reachable_urls(settings.host, port)
            _write_whole(home.reachable, "\n".join(reachable))
            _write_whole(home.address, url)
            try:
                yield RunningServer(url, reachable, home, credentials, settings, reload)
            finally:
                await _leave_cluster(node, process_settings, home, url, clock, report)
        finally:
            home.address.unlink(missing_ok=True)
            await supervisor.stop()


async def home_vanished(home: Home, clock: Clock) -> None:
    """Returns once the home was deleted, or replaced by another one."""
    ours = lock_id(home)
    while True:
        with suppress(OSError):  # Its disk may answer again.
            if lock_id(home) != ours or ours is None:
                return
        await clock.sleep(WATCH_HOME_SECONDS)


def _check_object_store(settings: Settings) -> None:
    """Here a wrong setting can be reported plainly."""
    if settings.object_store_url is not None:
        from sagehen.services.s3.storage import open_remote

        open_remote(settings)


def _make_keys(settings: Settings, home: Home, report: Callable[[str], None]) -> Credentials:
    """Makes missing keys; homes that share a state in PostgreSQL get those of the state."""
    if sqlite_file(settings) is not None:
        make_token(home.token)
        return make_credentials(home.credentials)
    from sagehen.state.database import Database
    from sagehen.state.shared_secrets import share_secret

    database = Database(settings.state_url)
    try:
        if share_secret(database, "access key", home.credentials, make_credentials):
            report(
                "This home had another access key than its state. It now has the state's, as all "
                f"homes that share it: sagehen env --home {home.path}"
            )
        share_secret(database, "token", home.token, make_token)
    finally:
        database.close()
    return load_credentials(home.credentials)


def choose_partition(settings: Settings) -> str:
    """Takes the setting, else the partition of the state's ARNs, else the region's."""
    if settings.partition is not None or partition_of(settings.region) == "aws":
        return settings.partition or "aws"
    from sagehen.app.partition import stored_partition
    from sagehen.state.database import Database

    database = Database(settings.state_url)
    try:
        with database.read() as connection:
            stored = stored_partition(connection, settings.region)
    finally:
        database.close()
    return stored or partition_of(settings.region)


def _node_of(settings: Settings, home: Home, port: int) -> AbstractContextManager[NodeSetup | None]:
    """Joins the cluster that the settings name, if any."""
    if settings.cluster is None:
        home.node_addresses.unlink(missing_ok=True)  # It may have been in a cluster before.
        return nullcontext()
    join_as_server(settings, home)
    return prepare_node(home, own_host(settings), port, settings.cluster_port)


async def _leave_cluster(
    node: NodeSetup | None,
    settings: Settings,
    home: Home,
    url: str,
    clock: Clock,
    report: Callable[[str], None],
) -> None:
    """The other nodes of a `local:` cluster end with this one."""
    if node is not None and not (settings.cluster or "").startswith("local:"):
        seconds = settings.cluster_leave_seconds
        await leave_cluster(home, url, node.addresses.node_id, seconds, clock, report)


def _ray(settings: Settings) -> list[Role]:
    """The process that speaks with Ray, where the cluster is one of Ray's."""
    if settings.cluster in (None, "state"):
        return []
    require_library("ray", "Ray", "ray")
    return [Role("ray")]


def make_agent(node: NodeSetup | None) -> Role:
    return Role("agent", sockets=() if node is None else (node.agent_listener,))


def make_gateways(
    home: Home, listeners: Sequence[socket.socket], node: NodeSetup | None
) -> list[Role]:
    """Makes a role for each socket, with its own row of the inflight table. Gateways of a cluster
    share the listener for other nodes."""
    peers = () if node is None else (node.peer_listener,)
    return [
        Role(
            "gateway",
            number=row,
            sockets=(listener, *peers),
            on_death=partial(clear_row, home.inflight_table, row),
        )
        for row, listener in enumerate(listeners)
    ]


@contextmanager
def listening(settings: Settings) -> Iterator[list[socket.socket]]:
    host, port = settings.host, settings.port
    with ExitStack() as stack:
        try:
            # First without SO_REUSEPORT, so that binding fails if the port is in use, even by our
            # own server.
            listeners = [stack.enter_context(_listen(host, port, shared=False))]
            if settings.gateway_count > 1:
                port = listeners.pop().getsockname()[1]
                stack.close()
                listeners = [
                    stack.enter_context(_listen(host, port, shared=True))
                    for _ in range(settings.gateway_count)
                ]
        except OSError as error:
            raise Unavailable(
                f"Cannot listen on {host} port {port}: {error.strerror or error}. "
                "Choose another with --port (0 takes any free one) or --host."
            ) from error
        yield listeners


def _listen(host: str, port: int, shared: bool) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_LISTEN_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def _wait_until_ready(
    url: str, supervisor: Supervisor, home: Home, clock: Clock, report: Callable[[str], None]
) -> None:
    began = clock.monotonic()
    deadline = began + READY_TIMEOUT_SECONDS
    next_report = began + _REPORT_SECONDS
    while not await asyncio.to_thread(_is_healthy, url):
        failing = supervisor.most_deaths()
        if failing.deaths >= _DEATHS_BEFORE_READY:
            raise Unavailable(
                f"The server did not start: {failing.title} ended {failing.deaths} times. "
                f"The last lines of its log:\n{_tail(home.logs / f'{failing.title}.log')}"
            )
        if clock.monotonic() > deadline:
            raise Unavailable(
                f"The server did not start within {READY_TIMEOUT_SECONDS:g} s. The logs of its "
                f"processes are in {home.logs}."
            )
        if clock.monotonic() > next_report:
            waited = clock.monotonic() - began
            report(
                f"Still waiting for the server's processes to answer, after {waited:.0f} s of at "
                f"most {READY_TIMEOUT_SECONDS:g} s. Their logs are in {home.logs}."
            )
            next_report += _REPORT_SECONDS
        await clock.sleep(_READY_POLL_SECONDS)


def _is_healthy(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_sagehen/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _write_whole(path: Path, text: str) -> None:
    """Writes atomically, so that readers never see a part."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


def _tail(log: Path, lines: int = 12) -> str:
    if not log.exists():
        return "(empty)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
