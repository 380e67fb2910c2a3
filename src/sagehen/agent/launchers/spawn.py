"""Starting a container's main process, and learning of its end."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sagehen.agent.launchers import become_container
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans

__all__ = ["kill_group", "spawn", "watch_end"]

START_SECONDS = 30.0
"""From fork to exec: more than a slow disk takes to bring the command."""
KILLED_SECONDS = 1.0
NONE = "-"
READ_BYTES = 64

_DOING = {"cgroup": " (joining its cgroup)", "mount": " (mounting its /opt/ml)"}
_BECOME = (sys.executable, "-ISs", str(Path(become_container.__file__)))


async def spawn(
    plan: LaunchPlan,
    output: int,
    procs: Path | None,
    orphans: Orphans,
    *,
    mounts: bool = False,
    umask: int = -1,
) -> subprocess.Popen[bytes]:
    """A process that runs `plan`; `orphans` expects it.

    Args:
        output: what it writes its standard output and error to.
        procs: the `cgroup.procs` of the cgroup that it is to join first.
        mounts: it is to see its base at /opt/ml, and what else is special to it.
        umask: its own; this process's where it is negative.

    Raises:
        OSError: its command cannot be run, it could not join, or nothing could be mounted.
    """
    report, report_end = os.pipe2(os.O_CLOEXEC)
    try:
        process = _fork(plan, output, report_end, procs, mounts, umask)
    except (OSError, ValueError):
        os.close(report)
        raise
    finally:
        os.close(report_end)
    orphans.expect(process.pid)
    try:
        async with asyncio.timeout(START_SECONDS):
            failed = await _read_all(report)
    except TimeoutError:
        _give_up(process, orphans)
        raise OSError(errno.ETIMEDOUT, f"it was not started within {START_SECONDS:g} s") from None
    except asyncio.CancelledError:
        _give_up(process, orphans)
        raise
    if failed:
        _give_up(process, orphans)
        number, _, doing = failed.decode().partition(" ")
        raise OSError(int(number), os.strerror(int(number)) + _DOING.get(doing, ""))
    return process


def watch_end(process: subprocess.Popen[bytes], on_end: Callable[[], None]) -> asyncio.Future[int]:
    """Its exit status, when it has ended and `on_end`, called before, has waited for it.

    Raises OSError: it cannot be watched, and was ended.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        kill_group(process.pid)
        process.wait()
        raise

    def end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        on_end()
        if not ended.cancelled():
            ended.set_result(process.wait())

    loop.add_reader(descriptor, end)
    return ended


def kill_group(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """End, or stop, a process that nobody has waited for yet, with its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _fork(
    plan: LaunchPlan, output: int, report: int, procs: Path | None, mounts: bool, umask: int
) -> subprocess.Popen[bytes]:
    # By the event loop's thread, which lives as long as the agent: the kernel ends a child with
    # the thread that started it. By subprocess, not by the loop: uvloop runs Python in the child
    # before it execs, and marks nothing that the agent has open as not to be inherited.
    seen = (plan.base, plan.hosts, _listed(plan.hidden)) if mounts else (None, None, None)
    told = (os.getpid(), report, *(one or NONE for one in (procs, *seen)))
    return subprocess.Popen(
        [*_BECOME, *map(str, told), *plan.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=plan.environment,
        cwd=plan.folder,
        start_new_session=True,
        pass_fds=(report,),
        umask=umask,
    )


def _listed(hidden: Sequence[Path]) -> str | None:
    """As `become_container` is told it: all lie in one folder."""
    return f"{hidden[0].parent}//{'/'.join(one.name for one in hidden)}" if hidden else None


async def _read_all(descriptor: int) -> bytes:
    """By the event loop: threads may all wait for a store that is slow."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    ended = loop.create_future()

    def read() -> None:
        parts.append(os.read(descriptor, READ_BYTES))
        if not parts[-1] and not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, read)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return b"".join(parts)


def _give_up(process: subprocess.Popen[bytes], orphans: Orphans) -> None:
    kill_group(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)
    orphans.forget(process.pid)
