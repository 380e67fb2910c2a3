"""The `docker` launcher: images run as containers of the Docker Engine on this machine."""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sagehen.agent.errors import CannotStart, EngineError, EngineNotFound
from sagehen.agent.instances.container_log import ContainerLog
from sagehen.agent.launchers.docker.container import DockerContainer
from sagehen.agent.launchers.docker.leftovers import (
    ContainerOwnership,
    read_ownership,
    remove_leftovers,
)
from sagehen.agent.launchers.docker.pipeline_limits import read_pipeline
from sagehen.agent.launchers.docker.registries import find_image_name, pull_failure
from sagehen.agent.launchers.docker.relay import ServerRelay
from sagehen.agent.launchers.docker.request import (
    ImageInfo,
    choose_port,
    container_request,
    open_to_all_users,
    require_labels,
)
from sagehen.agent.launchers.handoff import Handoff, open_handoff
from sagehen.agent.launchers.launcher import IMAGE_BASE, ImagePlan, LaunchPlan
from sagehen.agent.launchers.limit_watch import LimitWatch
from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.base.extras import require_library
from sagehen.base.home import Home
from sagehen.base.user_environment import docker_host
from sagehen.frame.images import DOCKER

if TYPE_CHECKING:
    from sagehen.agent.launchers.docker.engine import AttachedOutput, Engine
    from sagehen.base.settings import Settings

__all__ = ["DockerLauncher", "uses_docker"]

log = logging.getLogger(__name__)

THREADS = 8
"""calls at once, without pulls; a start takes half a second"""
NO_NETWORK = "none"
# Containers of different endpoints do not see each other.
_APART = {"com.docker.network.bridge.enable_icc": "false"}

_SERVER_VARIABLE = "AWS_ENDPOINT_URL"

_T = TypeVar("_T")


def uses_docker(settings: "Settings") -> bool:
    return DOCKER in (settings.launcher, *filter(_is_text, settings.images.values()))


def _is_text(rule: object) -> bool:
    return isinstance(rule, str)


@dataclass(frozen=True)
class _Connection:
    engine: "Engine"
    ownership: ContainerOwnership


class DockerLauncher:
    """Connects to the engine when a container is first started: nothing needs it before."""

    def __init__(self, settings: "Settings", home: Home, orphans: Orphans) -> None:
        self._settings = settings
        self._home = home
        self._host = settings.docker_host or docker_host()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._pulls: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._networking = asyncio.Lock()
        self._network_users: Counter[str] = Counter()
        self._relay = ServerRelay()
        self._watch = LimitWatch(SYSTEM, read_pipeline)
        self._orphans = orphans

    def container_base(self, base: Path) -> Path:
        return IMAGE_BASE

    async def clear(self) -> None:
        """Removes containers and networks of earlier agents of this home, if the engine answers;
        else the first start does it."""
        try:
            await self._connect()
        except EngineError as error:
            log.warning("Containers of an earlier agent could not be looked for: %s.", error)

    async def problems(self) -> list[str]:
        """Says why no image could be started now."""
        try:
            connection = await self._connect()
            await self._call(connection.engine.ping)
        except EngineError as error:
            return [f"No image can be run: {error}."]
        return []

    async def close(self) -> None:
        await self._relay.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            engine, network = connection.engine, connection.ownership.network
            await self._call(_remove_network, engine, network)
            await self._call(engine.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def start(self, plan: LaunchPlan) -> DockerContainer:
        image = plan.image
        assert image is not None
        if image.isolated:
            _check_isolation(image)
        connection = await self._connect()
        info = await self._find_image(connection.engine, image.uri)
        require_labels(image, info)
        network = await self._join_network(connection, image)
        try:
            return await self._start(connection, plan, info, network)
        except BaseException:
            self._leave_network(connection, network)
            raise

    async def _connect(self) -> _Connection:
        """Raises EngineError."""
        async with self._connecting:
            if self._connection is None:
                self._connection = await self._call(self._open)
        return self._connection

    def _open(self) -> _Connection:
        if not self._host.startswith("unix://"):
            raise EngineError(
                f"the Docker Engine at {self._host} may be on another machine, where the folders "
                "of this one cannot be mounted: set docker_host or DOCKER_HOST to a Unix socket "
                "such as unix:///var/run/docker.sock"
            )
        try:
            require_library("docker", "The Python package docker", "docker")
            ownership = read_ownership(self._home)
        except (Unavailable, OSError) as error:
            raise EngineError(str(error).rstrip(".")) from error
        from sagehen.agent.launchers.docker.engine import open_engine

        engine = open_engine(self._host)
        remove_leftovers(engine, ownership)
        return _Connection(engine, ownership)

    async def _find_image(self, engine: "Engine", uri: str) -> ImageInfo:
        """Pulls an image that is not here; concurrent starts wait for one pull."""
        name = find_image_name(uri, self._settings.docker_registries)
        async with self._pulls[name]:
            info = await self._call(engine.find_image, name)
            if info is not None:
                return info
            seconds = self._settings.docker_pull_timeout_seconds
            log.info("The image %s is pulled.", name)
            try:
                async with asyncio.timeout(seconds):
                    await _call_apart(engine.pull, name, seconds)
                info = await self._call(engine.find_image, name)
            except TimeoutError:
                reason = f"it took longer than {seconds:g} s (docker_pull_timeout_seconds)"
                raise CannotStart(pull_failure(uri, name, reason)) from None
            except EngineError as error:
                raise CannotStart(pull_failure(uri, name, str(error))) from error
        if info is None:
            raise CannotStart(pull_failure(uri, name, "the registry has it for no such platform"))
        return info

    async def _join_network(self, connection: _Connection, image: ImagePlan) -> str:
        if image.isolated:
            return NO_NETWORK
        engine, ownership = connection.engine, connection.ownership
        name = ownership.network if image.peers is None else f"sagehen-{image.peers}"
        options = _APART if image.peers is None else {}
        async with self._networking:
            try:
                await self._call(engine.inspect_network, name)
            except EngineNotFound:
                await self._call(engine.create_network, name, ownership.labels, options)
            self._network_users[name] += 1
        return name

    def _leave_network(self, connection: _Connection, name: str) -> None:
        """Removes a job's network after its last container."""
        self._network_users[name] -= 1
        if self._network_users[name] <= 0:
            del self._network_users[name]
            if name not in (NO_NETWORK, connection.ownership.network):
                self._threads.submit(_remove_network, connection.engine, name)

    async def _start(
        self, connection: _Connection, plan: LaunchPlan, info: ImageInfo, network: str
    ) -> DockerContainer:
        engine = connection.engine
        variables = await self._variables(engine, plan, network)
        beginning = asyncio.ensure_future(
            self._call(self._begin, connection, plan, info, network, variables)
        )
        try:
            begun = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # The thread goes on: what it starts is removed.
            beginning.add_done_callback(lambda done: self._discard(engine, done))
            raise
        container = DockerContainer(
            engine,
            begun.container_id,
            begun.pid,
            begun.address,
            plan.limits,
            begun.log,
            self._threads,
        )
        container.follow(begun.output, lambda: self._leave_network(connection, network))
        if plan.image is not None and plan.image.serves and plan.image.containers > 1:
            self._watch.add(plan.instance_id, container, plan.limits)
        if network == NO_NETWORK and plan.image is not None and plan.image.serves:
            await self._reach(container, plan.image, choose_port(plan.image, info))
        return container

    async def _reach(self, container: DockerContainer, image: ImagePlan, port: int) -> None:
        """Opens a way into a container without a network."""
        socket = image.socket
        assert socket is not None

        def open_inside(other_port: int) -> Awaitable[Handoff]:
            at = socket.with_suffix(f".{other_port}")
            return open_handoff(container.pid, at, self._orphans, port=other_port)

        container.open_inside = open_inside
        try:
            socket.parent.mkdir(mode=0o700, exist_ok=True)
            container.handoff = await open_handoff(container.pid, socket, self._orphans, port=port)
        except OSError as error:
            if container.has_ended:
                return  # which says more
            container.discard()
            raise CannotStart(
                f"the container's network cannot be entered ({error.strerror}): "
                "EnableNetworkIsolation needs a server that is root, with CAP_SYS_ADMIN, in the "
                "engine's process namespace"
            ) from error
        except asyncio.CancelledError:
            container.discard()
            raise

    def _begin(
        self,
        connection: _Connection,
        plan: LaunchPlan,
        info: ImageInfo,
        network: str,
        variables: dict[str, str],
    ) -> "_Begun":
        """Creates and starts a container, attached from the first byte of its output."""
        assert plan.image is not None
        assert plan.base is not None
        engine, labels = connection.engine, connection.ownership.labels
        try:
            if not info.runs_as_root:
                open_to_all_users(plan.base)
            request = container_request(plan, info, network, variables, labels)
            output_log = ContainerLog(plan.log, plan.log_bytes, listener=plan.listener)
        except OSError as error:
            raise CannotStart(f"{error.filename}: {error.strerror}") from error
        name = f"sagehen-{plan.instance_id}-{plan.name}-{secrets.token_hex(3)}"
        container_id = engine.create(request, name)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(engine.remove, container_id)
            output = engine.attach(container_id)
            on_failure.callback(output.close)
            engine.start(container_id)
            state = engine.inspect(container_id)
            on_failure.pop_all()
        address = None
        if plan.image.serves and network == NO_NETWORK:
            address = f"handoff:{plan.image.socket}"
        elif plan.image.serves:
            networks = state["NetworkSettings"]["Networks"]
            address = f"tcp:{networks[network]['IPAddress']}:{choose_port(plan.image, info)}"
        return _Begun(container_id, int(state["State"]["Pid"]), address, output_log, output)

    def _discard(self, engine: "Engine", beginning: "asyncio.Future[_Begun]") -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            self._threads.submit(_throw_away, engine, beginning.result())

    async def _variables(self, engine: "Engine", plan: LaunchPlan, network: str) -> dict[str, str]:
        """Where the container reaches this server, unless the user names another."""
        url = plan.image.server_url if plan.image is not None else None
        if url is None or network == NO_NETWORK or plan.environment.get(_SERVER_VARIABLE) != url:
            return {}
        described = await self._call(engine.inspect_network, network)
        gateway = described["IPAM"]["Config"][0]["Gateway"]
        return {_SERVER_VARIABLE: await self._relay.url(url, gateway, self._settings.host)}

    async def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


async def _call_apart(function: Callable[..., None], *arguments: Any) -> None:
    """Calls in a thread of its own, which goes on if nobody waits any more.

    No number of pulls that hang holds up other containers, or the end of this process.
    """
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()

    def call() -> None:
        try:
            function(*arguments)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=call, name="docker pull", daemon=True).start()
    await asyncio.wrap_future(done)


@dataclass(frozen=True)
class _Begun:
    """A container that runs, and whose output is not read yet."""

    container_id: str
    pid: int
    address: str | None
    log: ContainerLog
    output: "AttachedOutput"


def _throw_away(engine: "Engine", begun: _Begun) -> None:
    begun.output.close()
    try:
        engine.remove(begun.container_id)
    except EngineError as error:
        log.warning("A container that was not wanted any more could not be removed: %s.", error)


def _check_isolation(image: ImagePlan) -> None:
    """Raises CannotStart."""
    if image.containers > 1 and not image.serves:
        raise CannotStart(
            "EnableNetworkIsolation with more than one instance is not supported by the docker "
            "launcher: hosts of a job without a network cannot reach each other"
        )
    if image.serves and os.geteuid() != 0:
        raise CannotStart(
            "EnableNetworkIsolation needs a server that runs as root with the docker launcher: "
            "only root reaches a container without a network"
        )


def _remove_network(engine: "Engine", name: str) -> None:
    try:
        engine.remove_network(name)
    except EngineError as error:
        log.warning("The network %s could not be removed: %s.", name, error)
