"""A started container of the Docker Engine."""

import asyncio
import contextlib
import errno
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagehen.agent.errors import EngineError, EngineNotFound, EngineUnavailable
from sagehen.agent.instances.container_log import ContainerLog
from sagehen.agent.instances.limits import InstanceLimit, LimitHits, Limits, describe_hit
from sagehen.agent.launchers.docker.left_files import try_opening
from sagehen.agent.launchers.handoff import Handoff
from sagehen.base.clock import SYSTEM, Clock

if TYPE_CHECKING:
    from sagehen.agent.launchers.docker.engine import Engine

__all__ = [
    "DockerContainer",
    "listening_ports",
    "read_cpu_seconds",
    "read_memory_bytes",
    "read_processes",
]

log = logging.getLogger(__name__)

LOG_SETTLE_SECONDS = 1.0
RETRY_SECONDS = 1.0
LOST_SECONDS = 10.0
"""after a kill, an engine that does not answer counts as gone for good"""
KILLED = 128 + signal.SIGKILL
USAGE_SECONDS = 1.0
"""CPU time and processes may be as old as this: they are read together with the memory"""
_LISTENS = "0A"
_LOOPBACK = ("7F", "00000000000000000000000001000000")
_NANOSECONDS = 1e9


@dataclass(frozen=True)
class _Ending:
    status: int
    because: str | None = None
    exceeded: InstanceLimit | None = None


class DockerContainer:
    """A container whose end one thread waits for, after it has copied its output to the log."""

    def __init__(
        self,
        engine: "Engine",
        container_id: str,
        pid: int,
        address: str | None,
        limits: Limits,
        log: ContainerLog,
        threads: Executor,
        clock: Clock = SYSTEM,
    ) -> None:
        self._engine = engine
        self._id = container_id
        self._pid = pid
        self._address = address
        self._limits = limits
        self._log = log
        self._threads = threads
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[_Ending] = self._loop.create_future()
        self._settled: asyncio.Task[int] | None = None
        self._killed = threading.Event()
        self._exceeded: InstanceLimit | None = None
        self.handoff: Handoff | None = None
        """closed when the container has ended"""
        self.open_inside: Callable[[int], Awaitable[Handoff]] | None = None
        """makes a port reachable in a container without a network"""
        self._usage: tuple[float, dict[str, Any]] = (float("-inf"), {})

    @property
    def address(self) -> str | None:
        return self._address

    @property
    def pid(self) -> int:
        """The PID of its first process on this machine."""
        return self._pid

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    @property
    def ended_because(self) -> str | None:
        return self._ended.result().because if self._ended.done() else None

    def follow(self, output: Iterable[bytes], on_end: Callable[[], None]) -> None:
        """Starts the thread; `on_end` is called in the event loop."""
        self._ended.add_done_callback(lambda _: on_end())
        self._log.follow_chunks(self._output_then_end(output))

    async def wait(self) -> int:
        if self._settled is None:
            self._settled = asyncio.create_task(self._settle())
        return await asyncio.shield(self._settled)

    def terminate(self) -> None:
        if not self._ended.done():
            self._threads.submit(self._signal, "SIGTERM")

    def kill(self) -> None:
        if not self._ended.done():
            self._killed.set()
            self._threads.submit(self._signal, "SIGKILL")

    def end_for(self, limit: InstanceLimit, limits: Limits) -> None:
        if not self._ended.done() and not self._killed.is_set():
            self._exceeded = limit
            self.kill()

    def discard(self) -> None:
        """Ends a container that nobody waits for."""
        self.kill()
        self._settled = asyncio.create_task(self._settle())

    def last_lines(self) -> list[str]:
        return self._log.last_lines()

    async def memory_bytes(self) -> int:
        return read_memory_bytes(await self._read_usage())

    async def count_processes(self) -> int:
        """Counts threads too."""
        return read_processes(await self._read_recent_usage())

    async def cpu_seconds(self) -> float:
        return read_cpu_seconds(await self._read_recent_usage())

    async def listening_ports(self) -> list[int]:
        """Ports that the gateway could reach."""
        if self._ended.done():
            return []
        is_isolated = self.open_inside is not None
        return await asyncio.to_thread(listening_ports, self._pid, on_loopback=is_isolated)

    @contextlib.asynccontextmanager
    async def reach(self, port: int) -> AsyncIterator[str]:
        if self.open_inside is not None:
            handoff = await self.open_inside(port)
            try:
                yield handoff.address
            finally:
                await handoff.close()
        elif self._address is not None:
            yield f"{self._address.rpartition(':')[0]}:{port}"
        else:
            raise OSError(errno.EOPNOTSUPP, "the container does not serve")

    def note(self, message: str) -> None:
        self._log.add(f"sagehen: {message}")

    @property
    def is_forked(self) -> bool:
        return False

    def hits(self) -> LimitHits:
        hits = {InstanceLimit.LOG: self._log.rotations}
        exceeded = self._ended.result().exceeded if self._ended.done() else None
        return hits if exceeded is None else {**hits, exceeded: 1}

    async def _settle(self) -> int:
        ending = await asyncio.shield(self._ended)
        await asyncio.to_thread(self._log.settle, LOG_SETTLE_SECONDS)
        if ending.because is not None:
            # Users look in the log, and the process had no time to write.
            await asyncio.to_thread(self._log.add, f"sagehen: {ending.because}.")
        if self.handoff is not None:
            await self.handoff.close()
        await self._loop.run_in_executor(self._threads, self._remove)
        return ending.status

    def _output_then_end(self, output: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from output
        except Exception:
            # The end must be noticed all the same.
            log.exception("The output of a container could not be read.")
        ending = self._wait_for_end()
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._ended.set_result, ending)

    def _wait_for_end(self) -> _Ending:
        """Also while the engine is being restarted. Blocks."""
        lost_for = 0.0
        while True:
            try:
                self._engine.wait(self._id)
                return self._describe_end(self._engine.inspect(self._id)["State"])
            except EngineNotFound:
                return _Ending(-signal.SIGKILL, "it was removed by another program")
            except EngineError as error:
                if self._killed.wait(RETRY_SECONDS):
                    lost_for += RETRY_SECONDS
                    threading.Event().wait(RETRY_SECONDS)
                if lost_for >= LOST_SECONDS:
                    return _Ending(-signal.SIGKILL, str(error))

    def _describe_end(self, state: dict[str, Any]) -> _Ending:
        code = int(state["ExitCode"])
        status = -(code - 128) if 128 < code < 128 + signal.NSIG else code
        exceeded = self._exceeded
        if state.get("OOMKilled") and code != 0:
            exceeded = InstanceLimit.MEMORY
        if exceeded is not None:
            return _Ending(status, describe_hit(exceeded, self._limits), exceeded)
        return _Ending(status)

    def _signal(self, name: str) -> None:
        try:
            self._engine.signal(self._id, name)
        except EngineUnavailable as error:
            log.warning("A container could not be sent %s: %s.", name, error)
        except EngineError:
            pass  # it has ended

    def _remove(self) -> None:
        try_opening(self._engine, self._id)
        try:
            self._engine.remove(self._id)
        except EngineError as error:
            log.warning("The container %s could not be removed: %s.", self._id[:12], error)

    async def _read_recent_usage(self) -> dict[str, Any]:
        read_at, usage = self._usage
        is_recent = self._clock.monotonic() - read_at <= USAGE_SECONDS
        return usage if is_recent else await self._read_usage()

    async def _read_usage(self) -> dict[str, Any]:
        """Returns an empty dict if the container has ended."""
        if self._ended.done():
            return {}
        try:
            usage = await self._loop.run_in_executor(self._threads, self._engine.stats, self._id)
        except EngineError:
            usage = {}
        self._usage = (self._clock.monotonic(), usage)
        return usage


def read_memory_bytes(usage: dict[str, Any]) -> int:
    """Memory that the container's processes hold: files that the kernel caches are left out."""
    memory = usage.get("memory_stats") or {}
    stats = memory.get("stats") or {}
    if "anon" in stats:  # cgroups of version 2
        return int(stats["anon"] + stats.get("file_mapped", 0))
    if "total_rss" in stats:
        return int(stats["total_rss"] + stats.get("total_mapped_file", 0))
    return int(memory.get("usage", 0))


def read_processes(usage: dict[str, Any]) -> int:
    return int((usage.get("pids_stats") or {}).get("current", 0))


def read_cpu_seconds(usage: dict[str, Any]) -> float:
    used = (usage.get("cpu_stats") or {}).get("cpu_usage") or {}
    return float(used.get("total_usage", 0)) / _NANOSECONDS


def listening_ports(
    pid: int, proc: Path = Path("/proc"), *, on_loopback: bool = False
) -> list[int]:
    """Returns the TCP ports in the network namespace of a process; empty if that cannot be read.
    Blocks.

    Args:
        on_loopback: also those on its loopback device alone.
    """
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / str(pid) / "net" / table).read_text().splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                address, _, port = local.partition(":")
                # The first byte of an IPv4 address comes last.
                is_loopback = address[6:] == _LOOPBACK[0] or address == _LOOPBACK[1]
                if state == _LISTENS and (on_loopback or not is_loopback):
                    ports.add(int(port, 16))
    return sorted(ports)
