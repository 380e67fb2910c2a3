"""Starts a container's main process and reports its end."""

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

__all__ = ["kill_group", "read_report", "spawn", "watch_end"]

START_SECONDS = 30.0
"""from fork to exec: more than a slow disk takes"""
KILLED_SECONDS = 1.0
NONE = "-"
READ_BYTES = 64

_STEPS = {"cgroup": " (joining its cgroup)", "mount": " (mounting its /opt/ml)"}
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
    """Starts a process for `plan` and registers it with `orphans`.

    Args:
        output: for stdout and stderr.
        procs: the `cgroup.procs` to join.
        mounts: the plan's base, hosts and hidden paths take effect.
        umask: negative keeps this process's own.

    Raises:
        OSError: running the command, joining or mounting failed.
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
            failure = await read_report(report)
    except TimeoutError:
        _give_up(process, orphans)
        raise OSError(errno.ETIMEDOUT, f"it was not started within {START_SECONDS:g} s") from None
    except asyncio.CancelledError:
        _give_up(process, orphans)
        raise
    if failure:
        _give_up(process, orphans)
        number, _, step = failure.decode().partition(" ")
        raise OSError(int(number), os.strerror(int(number)) + _STEPS.get(step, ""))
    return process


def watch_end(process: subprocess.Popen[bytes], on_end: Callable[[], None]) -> asyncio.Future[int]:
    """Returns the exit status's future; `on_end` runs before the process is waited for.

    Raises OSError, and ends the process, if it cannot be watched.
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
    """The process must not have been waited for yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _fork(
    plan: LaunchPlan, output: int, report: int, procs: Path | None, mounts: bool, umask: int
) -> subprocess.Popen[bytes]:
    # In the event loop's thread, which lives as long as the agent: the kernel ends a child with the
    # thread that started it. By subprocess: uvloop runs Python before exec and lets the child
    # inherit open files.
    mounted = (
        (plan.base, plan.hosts, _hidden_argument(plan.hidden)) if mounts else (None, None, None)
    )
    options = (os.getpid(), report, *(option or NONE for option in (procs, *mounted)))
    return subprocess.Popen(
        [*_BECOME, *map(str, options), *plan.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=plan.environment,
        cwd=plan.folder,
        start_new_session=True,
        pass_fds=(report,),
        umask=umask,
    )


def _hidden_argument(hidden: Sequence[Path]) -> str | None:
    """Returns the argument of `become_container`; all paths lie in one folder."""
    return f"{hidden[0].parent}//{'/'.join(path.name for path in hidden)}" if hidden else None


async def read_report(descriptor: int) -> bytes:
    """Reads in the event loop: all threads may wait for a slow store."""
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
