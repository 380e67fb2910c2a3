"""The fork servers of this node: which run, and how they are asked for a container."""

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import Callable, Collection, Sequence

import msgspec

from sagehen.agent.instances.process_tree import tree_memory_bytes
from sagehen.agent.launchers.fork_messages import ForkRequest, Ready, StartRefused
from sagehen.agent.launchers.forkable import (
    ROOM_BYTES,
    ForkKind,
    fork_kind,
    server_variables,
    why_not_forkable,
)
from sagehen.agent.launchers.helper_process import HelperProcess
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.concurrency import first_of
from sagehen.base.retry import Backoff
from sagehen.containers.modelserver.forked import ROOM

__all__ = ["ForkServer", "ForkServers", "Kept"]

log = logging.getLogger(__name__)

PROGRAM = "sagehen.agent.launchers.fork_server"
READY_SECONDS = 120.0
"""to import a framework on a busy machine"""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 300.0
MESSAGE_BYTES = 65536


class ForkServer:
    """A running fork server; `start_server` makes it."""

    def __init__(self, process: HelperProcess, end: socket.socket, search: Sequence[str]) -> None:
        self.process = process
        self._end = end
        self._search = search
        self._versions = _versions(search)

    @property
    def is_current(self) -> bool:
        """Whether it runs, and nothing was installed since it made its imports."""
        return not self.process.ended.done() and _versions(self._search) == self._versions

    def request(self, request: ForkRequest, report: int, output: int) -> None:
        """Raises OSError if the server does not take it, ValueError if it cannot be written."""
        data = msgspec.json.encode(request)
        file = os.memfd_create("sagehen-container", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as message:
                message.write(data)
            os.lseek(file, 0, os.SEEK_SET)
            socket.send_fds(self._end, [b"f"], [file, report, output])
        finally:
            os.close(file)

    async def close(self) -> None:
        self._end.close()
        await self.process.close()


def _versions(search: Sequence[str]) -> list[int]:
    """The times of the last changes in folders of packages, in nanoseconds."""
    times = []
    for folder in search:
        try:
            times.append(os.stat(folder).st_mtime_ns)
        except OSError:
            times.append(0)
    return times


async def start_server(kind: ForkKind, orphans: Orphans, umask: int = -1) -> ForkServer:
    """Returns when the framework is imported. Raises OSError with the reason."""
    end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with server_end:
            process = _run(kind, server_end, umask)
            helper = HelperProcess(process.pid, "A fork server", orphans, process)
    except OSError:
        end.close()
        raise
    try:
        end.setblocking(False)
        async with asyncio.timeout(READY_SECONDS):
            message = await asyncio.get_running_loop().sock_recv(end, MESSAGE_BYTES)
        ready = (
            msgspec.json.decode(message, type=Ready | StartRefused)
            if message
            else StartRefused(reason="it has ended before it was ready")
        )
        if isinstance(ready, StartRefused):
            raise OSError(0, ready.reason)
    except BaseException:
        end.close()
        await helper.close()
        raise
    return ForkServer(helper, end, ready.search)


def _run(kind: ForkKind, end: socket.socket, umask: int) -> "subprocess.Popen[bytes]":
    # In the event loop's thread: the kernel ends a child with the thread that started it.
    return subprocess.Popen(
        [kind.python, "-m", PROGRAM, str(os.getpid()), str(end.fileno()), kind.adapter],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=server_variables(kind.python) | {ROOM: "x" * ROOM_BYTES},
        cwd="/",
        start_new_session=True,
        pass_fds=[end.fileno()],
        umask=umask,
    )


class Kept:
    """A fork server that is kept running, with the task that does so."""

    def __init__(self, kind: ForkKind) -> None:
        self.kind = kind
        self.server: ForkServer | None = None
        self.task: asyncio.Task[None] | None = None
        self.outdated = asyncio.Event()


class ForkServers:
    """Keeps up to `most` fork servers running, those that were used last.

    Args:
        orphans: must adopt: containers become this process's children so.
        late_variables: that containers may have besides, as only scripts read them.
        umask: negative keeps this process's own.
    """

    def __init__(
        self,
        most: int,
        orphans: Orphans,
        late_variables: Collection[str] = (),
        clock: Clock = SYSTEM,
        *,
        umask: int = -1,
        start: Callable[..., "asyncio.Future[ForkServer]"] | None = None,
    ) -> None:
        self._most = most
        self._orphans = orphans
        self._late_variables = frozenset(late_variables)
        self._clock = clock
        self._umask = umask
        self._start = start or start_server
        self._starting = asyncio.Lock()
        """the imports of two at once take as long as one after the other"""
        self._kept: dict[ForkKind, Kept] = {}
        self._wanted: tuple[ForkKind, ...] = ()
        self._used: dict[ForkKind, int] = {}
        self._uses = 0
        self._ends: set[asyncio.Task[None]] = set()

    def keep(self, kinds: Sequence[ForkKind]) -> None:
        """Starts and ends fork servers, so that these kinds are served, or as many as may be."""
        self._wanted = tuple(dict.fromkeys(kinds))
        self._follow()

    def find(self, plan: LaunchPlan) -> ForkServer | None:
        """Returns the server for a plan; None if it must start in the ordinary way."""
        kind = fork_kind(plan)
        if kind is None or kind not in self._wanted:
            return None
        reason = why_not_forkable(plan, self._late_variables)
        self._uses += 1
        self._used[kind] = self._uses
        self._follow()
        kept = self._kept.get(kind)
        server = kept.server if kept is not None else None
        if reason is None and (kept is None or server is None):
            reason = "its fork server is not ready"
        elif reason is None and server is not None and not server.is_current:
            assert kept is not None
            reason = "libraries were installed since its fork server started"
            kept.outdated.set()
        if reason is not None:
            about = {"container": plan.name, "instance": plan.instance_id, "reason": reason}
            log.info("A container is started without a fork server.", extra=about)
            return None
        return server

    def replace(self, server: ForkServer) -> None:
        """Ends a server that has failed to start a container, and starts another."""
        for kept in self._kept.values():
            if kept.server is server:
                kept.server = None
                kept.outdated.set()

    async def close(self) -> None:
        self.keep(())
        await asyncio.gather(*self._ends, return_exceptions=True)

    def _follow(self) -> None:
        by_use = sorted(self._wanted, key=lambda kind: -self._used.get(kind, 0))
        chosen = by_use[: self._most]
        for kind in [kind for kind in self._kept if kind not in chosen]:
            kept = self._kept.pop(kind)
            if kept.task is not None:
                kept.task.cancel()
                self._ends.add(kept.task)
                kept.task.add_done_callback(self._ends.discard)
        for kind in chosen:
            if kind not in self._kept:
                kept = self._kept[kind] = Kept(kind)
                kept.task = asyncio.create_task(self._keep_running(kept))

    async def _keep_running(self, kept: Kept) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            try:
                async with self._starting:
                    began = self._clock.monotonic()
                    server = await self._start(kept.kind, self._orphans, self._umask)
            except (OSError, TimeoutError, msgspec.MsgspecError) as error:
                about = {"adapter": kept.kind.adapter, "python": kept.kind.python}
                reason = getattr(error, "strerror", None) or str(error) or "it took too long"
                log.warning("A fork server cannot be started: %s.", reason, extra=about)
                await self._clock.sleep(backoff.next_seconds())
                continue
            kept.outdated.clear()
            kept.server = server
            try:
                await self._announce(kept.kind, server, self._clock.monotonic() - began)
                await first_of(server.process.ended, kept.outdated.wait())
            finally:
                kept.server = None
                await server.close()
            if self._clock.monotonic() - began > LONGEST_RETRY_SECONDS:
                backoff.reset()
            await self._clock.sleep(backoff.next_seconds())

    async def _announce(self, kind: ForkKind, server: ForkServer, seconds: float) -> None:
        about = {
            "adapter": kind.adapter,
            "python": kind.python,
            "pid": server.process.pid,
            "seconds": round(seconds, 2),
            "memory_bytes": await asyncio.to_thread(tree_memory_bytes, server.process.pid),
        }
        log.info("A fork server is ready.", extra=about)
