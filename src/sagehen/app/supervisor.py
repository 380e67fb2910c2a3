"""Starts a machine's processes, restarts them when they die, and stops them in order."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from logging.handlers import RotatingFileHandler
from typing import TypeVar

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.base.pickled_settings import pickle_settings
from sagehen.base.retry import Backoff
from sagehen.base.settings import Settings

__all__ = ["Deaths", "Role", "Supervisor"]

log = logging.getLogger(__name__)

Stream = TypeVar("Stream", asyncio.StreamReader, asyncio.StreamWriter)

FIRST_RESTART_DELAY_SECONDS = 0.1
LONGEST_RESTART_DELAY_SECONDS = 5.0
STEADY_AFTER_SECONDS = 10.0
"""a process that lives longer is restarted with the first delay"""
STOP_TIMEOUT_SECONDS = 40.0
"""longer than the 30 s that gateways and instances may take"""
LOG_BYTES = 10 * 2**20
LONGEST_LOG_LINE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Role:
    """One process, `python -m sagehen.app.roles.<name>`."""

    name: str
    number: int | None = None
    """index if the role has several processes"""
    sockets: tuple[socket.socket, ...] = ()
    """held open here, so that connections wait in the kernel during a restart"""
    forewarned: bool = False
    """gets SIGUSR1 before the server stops, to end long polls"""
    on_death: Callable[[], None] | None = None
    """before the restart"""

    @property
    def title(self) -> str:
        """The name in logs, and of the log file."""
        return self.name if self.number is None else f"{self.name}-{self.number}"


@dataclass(frozen=True)
class Deaths:
    """How often a role's process has ended by itself."""

    title: str
    deaths: int


@dataclass
class _Child:
    role: Role
    deaths: int = 0
    is_restarting: bool = False
    """it was asked to end, and is started again with other settings"""
    process: asyncio.subprocess.Process | None = None
    watch: asyncio.Task[None] | None = None
    restart: asyncio.Task[None] | None = None
    backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_RESTART_DELAY_SECONDS, LONGEST_RESTART_DELAY_SECONDS)
    )


class Supervisor:
    """Restarts each role alone, and stops them in the given order."""

    def __init__(
        self,
        roles: Sequence[Role],
        settings: Settings,
        environment: dict[str, str],
        clock: Clock,
        umask: int = -1,
    ) -> None:
        """A restarted process gets the same `settings`, even if files changed meanwhile. `umask` is
        the user's, for containers."""
        self._children = [_Child(role) for role in roles]
        self._home = Home(settings.home)
        self._settings = pickle_settings(settings)
        self._environment = environment
        self._clock = clock
        self._umask = umask
        self._stopping = False

    async def start(self) -> None:
        for child in self._children:
            child.watch = asyncio.create_task(self._keep_running(child))

    def most_deaths(self) -> Deaths:
        """Returns the role that died most often, to explain a failed start."""
        child = max(self._children, key=lambda child: child.deaths)
        return Deaths(child.role.title, child.deaths)

    def restart(self, name: str, settings: Settings) -> None:
        """Ends the role's processes, as `stop` does, and starts them with `settings`, which all
        that is started later gets, too."""
        self._settings = pickle_settings(settings)
        for child in self._children:
            process = child.process
            if child.role.name != name or child.is_restarting:
                continue
            if process is None or process.returncode is not None:
                continue
            child.is_restarting = True
            if child.role.forewarned:
                process.send_signal(signal.SIGUSR1)
            child.restart = asyncio.create_task(_terminate(child.role, process))

    async def stop(self) -> None:
        """Closes the sockets and terminates the processes; kills those that take too long."""
        self._stopping = True
        # Open sockets would accept connections only to cut them off later.
        for child in self._children:
            for listener in child.role.sockets:
                listener.close()
            if child.role.forewarned and child.process and child.process.returncode is None:
                child.process.send_signal(signal.SIGUSR1)
        for _, same in groupby(self._children, lambda child: child.role.name):
            await asyncio.gather(*(self._end(child) for child in same))

    async def _end(self, child: _Child) -> None:
        process = child.process
        if process is not None and process.returncode is None:
            await _terminate(child.role, process)
        if child.watch is not None:
            child.watch.cancel()
            await asyncio.gather(child.watch, return_exceptions=True)

    async def _keep_running(self, child: _Child) -> None:
        while not self._stopping:
            started = self._clock.monotonic()
            try:
                await self._run_once(child)
            except OSError as error:
                # A lack of memory, descriptors or disk space may pass.
                log.warning("%s cannot be started: %s", child.role.title, error)
            if child.role.on_death is not None:
                child.role.on_death()
            if self._stopping:
                return
            if child.is_restarting:
                child.is_restarting = False
                continue
            child.deaths += 1
            if self._clock.monotonic() - started > STEADY_AFTER_SECONDS:
                child.backoff.reset()
            delay = child.backoff.next_seconds()
            status = child.process.returncode if child.process else None
            log.warning(
                "%s ended with status %s and is started again in %.1f s; its log is %s.",
                child.role.title,
                status,
                delay,
                self._home.logs / f"{child.role.title}.log",
            )
            await self._clock.sleep(delay)

    async def _run_once(self, child: _Child) -> None:
        role = child.role
        # The log comes first: a process blocks if nobody reads its output.
        file = _RoleLog(self._home.logs / f"{role.title}.log", maxBytes=LOG_BYTES, backupCount=1)
        try:
            process = child.process = await self._spawn(role)
            await _keep_log(file, _pipe(process.stdout))
            await process.wait()
        finally:
            file.close()

    async def _spawn(self, role: Role) -> asyncio.subprocess.Process:
        descriptors = [listener.fileno() for listener in role.sockets]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"sagehen.app.roles.{role.name}",
            f"--parent={os.getpid()}",
            f"--umask={self._umask}",
            *(f"--socket={descriptor}" for descriptor in descriptors),
            *(() if role.number is None else (f"--number={role.number}",)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            pass_fds=descriptors,
            limit=LONGEST_LOG_LINE_BYTES,
            # Ctrl-C reaches only the supervisor, which stops the others in order.
            start_new_session=True,
        )
        stdin = _pipe(process.stdin)
        stdin.write(self._settings)
        stdin.close()
        return process


async def _terminate(role: Role, process: asyncio.subprocess.Process) -> None:
    """Kills the process if it takes too long."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_SECONDS)
    except TimeoutError:
        log.warning("%s did not stop in time and is killed.", role.title)
        process.kill()
    else:
        if process.returncode not in (0, -signal.SIGTERM):
            log.warning("%s ended with status %s.", role.title, process.returncode)


def _pipe(stream: Stream | None) -> Stream:
    """Returns a stream that `_spawn` has requested."""
    if stream is None:
        raise ValueError("The process was started without this pipe.")
    return stream


class _RoleLog(RotatingFileHandler):
    """Warns once if the log cannot be written, not for every line."""

    _warned = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._warned:
            self._warned = True
            error = sys.exc_info()[1]
            log.warning("%s cannot be written: %s. Its lines are lost.", self.baseFilename, error)


async def _keep_log(file: RotatingFileHandler, output: asyncio.StreamReader) -> None:
    """Copies output to a log that is bounded by rotation."""
    while line := await _read_line(output):
        text = line.decode("utf-8", "replace").rstrip("\n")
        file.emit(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))


async def _read_line(output: asyncio.StreamReader) -> bytes:
    """Returns a line, or its part in a full buffer; empty at the end."""
    try:
        return await output.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as overrun:
        return await output.readexactly(overrun.consumed)
