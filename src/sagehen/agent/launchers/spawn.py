"""Starts a container's main process and reports its end."""

import asyncio
import contextlib
import errno
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from sagehen.agent.launchers import become_container
from sagehen.agent.launchers.helper_process import read_report
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.own_network import network_options
from sagehen.agent.launchers.walls import NO_WALLS, Walls, view_environment, view_options

__all__ = [
    "MainProcess",
    "Starter",
    "StepError",
    "failure_in",
    "kill_group",
    "read_report",
    "spawn",
    "started_as",
    "watch_end",
]

START_SECONDS = 30.0
"""from fork to exec: more than a slow disk takes"""
KILLED_SECONDS = 1.0

STEPS = {
    "cgroup": "joining its cgroup",
    "mount": "mounting its /opt/ml",
    "files": "hiding the machine's files",
    "overlay": "giving it an /etc of its own",
    "network": "setting up its network",
    "processes": "giving it a process table of its own",
}


class StepError(OSError):
    """A step of `become_container` has failed."""

    def __init__(self, number: int, message: str, step: str = "") -> None:
        super().__init__(number, message)
        self.step = step


def _program() -> str:
    """Returns the program's path: compiled if possible, which saves a third of its start."""
    source = become_container.__file__
    compiled = importlib.util.cache_from_source(source)
    # An agent of another user may have compiled it, whose new files are private.
    return compiled if os.access(compiled, os.R_OK) else source


_BECOME = (sys.executable, "-ISs", _program())


class Starter(Protocol):
    """A child of this process, as `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


class MainProcess:
    """The main process of a container, a child of this process.

    Args:
        starter: the process that was forked, which is the main process unless it has started two.
        pids: of the first process of a pid namespace, and of the main process in it.
        helpers: PIDs and names of the processes that serve its network. They do not end with it,
            but by `give_up` or by who watches them.
    """

    def __init__(
        self,
        starter: Starter,
        orphans: Orphans,
        pids: tuple[int, int] | None = None,
        helpers: dict[int, str] | None = None,
    ) -> None:
        self._starter = starter
        self._orphans = orphans
        self.helpers = helpers or {}
        self._init = pids[0] if pids is not None else None
        self.pid = pids[1] if pids is not None else starter.pid
        self.returncode: int | None = None
        for pid in self._pids():
            orphans.expect(pid)

    @property
    def init_pid(self) -> int | None:
        """The first process of the container's pid namespace, until it was waited for."""
        return self._init

    def wait(self) -> int:
        if self.returncode is None:
            if self._starter.pid == self.pid:
                self.returncode = self._starter.wait()
            else:
                _, status = os.waitpid(self.pid, 0)
                self.returncode = os.waitstatus_to_exitcode(status)
            self._orphans.forget(self.pid)
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill_all(self) -> None:
        """Kills the process group, and all processes of the pid namespace."""
        if self.returncode is None:
            kill_group(self.pid)
        if self._init is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._init, signal.SIGKILL)

    def wait_for_init(self) -> None:
        """Waits for the end of all processes of the pid namespace, which must have been killed."""
        if self._init is not None:
            os.waitpid(self._init, 0)
            self._orphans.forget(self._init)
            self._init = None

    def give_up(self) -> None:
        """Kills all and waits, but not for what the kernel holds up. Blocks briefly."""
        self.kill_all()
        for pid in self.helpers:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + KILLED_SECONDS
        for pid in self._pids():
            while self._is_running(pid) and time.monotonic() < deadline:
                time.sleep(0.001)
            self._orphans.forget(pid)
        self.returncode = -signal.SIGKILL
        self._init = None

    def _is_running(self, pid: int) -> bool:
        if pid == self._starter.pid:
            return self._starter.poll() is None
        return os.waitpid(pid, os.WNOHANG)[0] == 0

    def _pids(self) -> Iterator[int]:
        yield self.pid
        if self._init is not None:
            yield self._init
        yield from self.helpers


async def spawn(
    plan: LaunchPlan,
    output: int,
    procs: Path | None,
    orphans: Orphans,
    *,
    walls: Walls = NO_WALLS,
    umask: int = -1,
    handoff: socket.socket | None = None,
) -> MainProcess:
    """Starts a process for `plan` and registers it with `orphans`.

    Args:
        output: for stdout and stderr.
        procs: the `cgroup.procs` to join.
        walls: decide which of the plan's paths take effect.
        umask: negative keeps this process's own.
        handoff: listens for the plan's network, if that has a handoff.

    Raises:
        OSError: running the command, joining or mounting failed.
    """
    options = [f"cgroup={procs}"] if procs else []
    options += view_options(plan, walls)
    options += network_options(plan.network, handoff)
    plan = replace(plan, environment=view_environment(plan, walls))
    with orphans.starting():
        report, report_end = os.pipe2(os.O_CLOEXEC)
        passed = [report_end] if handoff is None else [report_end, handoff.fileno()]
        try:
            starter = _fork(plan, output, passed, options, umask)
        except (OSError, ValueError):
            os.close(report)
            raise
        finally:
            os.close(report_end)
        orphans.expect(starter.pid)
        text = await _read_start(report, starter, orphans)
        process = started_as(starter, text, orphans)
    if (error := failure_in(text)) is not None:
        process.give_up()
        raise error
    return process


async def _read_start(
    report: int, starter: "subprocess.Popen[bytes]", orphans: Orphans
) -> bytearray:
    """Ends what was started if the report does not come in time."""
    text = bytearray()
    try:
        async with asyncio.timeout(START_SECONDS):
            await read_report(report, text)
    except TimeoutError:
        _give_up(starter, text, orphans)
        reason = f"it was not started within {START_SECONDS:g} s"
        raise OSError(errno.ETIMEDOUT, reason) from None
    except asyncio.CancelledError:
        _give_up(starter, text, orphans)
        raise
    return text


def watch_end(process: MainProcess, on_end: Callable[[], None]) -> asyncio.Future[int]:
    """Returns the exit status's future; `on_end` runs before the process is waited for, and must
    kill all others.

    Raises OSError, and ends the process, if it cannot be watched.
    """
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        process.wait_for_init()
        if not ended.cancelled():
            ended.set_result(process.wait())

    def end() -> None:
        on_end()
        try:
            if process.init_pid is not None:
                _when_ended(process.init_pid, finish)
                return
        except OSError:
            pass  # no descriptor is free: wait here, not for long
        finish()

    try:
        _when_ended(process.pid, end)
    except OSError:
        process.give_up()
        raise
    return ended


def _when_ended(pid: int, callback: Callable[[], None]) -> None:
    """Raises OSError if the process cannot be watched."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(pid)

    def end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        callback()

    loop.add_reader(descriptor, end)


def kill_group(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """The process must not have been waited for yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _fork(
    plan: LaunchPlan, output: int, passed: Sequence[int], options: Sequence[str], umask: int
) -> "subprocess.Popen[bytes]":
    # In the event loop's thread, which lives as long as the agent: the kernel ends a child with the
    # thread that started it. By subprocess: uvloop runs Python before exec and lets the child
    # inherit open files.
    words = (str(os.getpid()), str(passed[0]), *options, "--")
    return subprocess.Popen(
        [*_BECOME, *words, *plan.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=plan.environment,
        cwd=plan.folder,
        start_new_session=True,
        pass_fds=passed,
        umask=umask,
    )


def started_as(starter: Starter, report: bytearray, orphans: Orphans) -> MainProcess:
    helpers: dict[int, str] = {}
    pids = None
    for line in report.decode().splitlines():
        match line.split():
            case ["helper", pid, name]:
                helpers[int(pid)] = name
            case ["started", init, main]:
                pids = int(init), int(main)
    if pids is not None:
        starter.wait()
        orphans.forget(starter.pid)
    return MainProcess(starter, orphans, pids, helpers)


def failure_in(report: bytearray) -> OSError | None:
    for line in report.decode().splitlines():
        if line.startswith("failed "):
            _, number, *step = line.split()
            where = f" ({STEPS.get(step[0], step[0])})" if step else ""
            return StepError(int(number), os.strerror(int(number)) + where, *step)
    return None


def _give_up(starter: "subprocess.Popen[bytes]", report: bytearray, orphans: Orphans) -> None:
    kill_group(starter.pid)
    started_as(starter, report, orphans).give_up()
    # It may have started others that it has not reported.
    orphans.end()
