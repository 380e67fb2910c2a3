"""The `process` launcher: a container is a process of this machine in a session of its own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from sagehen.agent.container_log import ContainerLog
from sagehen.agent.faults import CannotStart
from sagehen.agent.launcher import LaunchPlan
from sagehen.agent.launchers import become_container
from sagehen.agent.memory import TreeMemory

__all__ = ["ContainerProcess", "ProcessLauncher"]

LOG_SETTLE_SECONDS = 1.0

_BECOME = (sys.executable, "-ISs", str(Path(become_container.__file__)))


class ContainerProcess:
    """A container that runs as a process group."""

    def __init__(self, process: subprocess.Popen[bytes], log: ContainerLog) -> None:
        self._process = process
        self._log = log
        self._ended = _watch(process)
        self._memory = TreeMemory(process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        # Shielded: who stops waiting must not end the waiting of the others.
        status = await asyncio.shield(self._ended)
        await asyncio.to_thread(self._log.settle, LOG_SETTLE_SECONDS)
        return status

    def terminate(self) -> None:
        # The main process alone, as `docker stop` does: it tells its own workers.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        if self._process.returncode is None:
            _kill_group(self._process.pid)

    def last_lines(self) -> list[str]:
        return self._log.last_lines()

    async def memory_bytes(self) -> int:
        if self._process.returncode is not None:
            return 0
        return await asyncio.to_thread(self._memory.read)


class ProcessLauncher:
    """Starts containers as children that cannot outlive the agent."""

    async def start(self, plan: LaunchPlan) -> ContainerProcess:
        output, output_end = os.pipe2(os.O_CLOEXEC)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(os.close, output)
            try:
                log = ContainerLog(plan.log, plan.log_bytes)
                container = ContainerProcess(await _spawn(plan, output_end), log)
            except (OSError, ValueError) as error:
                raise CannotStart(f"{plan.command[0]}: {_reason(error)}") from error
            finally:
                os.close(output_end)
            on_failure.pop_all()
        log.follow(output)
        return container


async def _spawn(plan: LaunchPlan, output: int) -> subprocess.Popen[bytes]:
    """Raises OSError: its command cannot be run."""
    report, report_end = os.pipe2(os.O_CLOEXEC)
    try:
        process = _fork(plan, output, report_end)
    except (OSError, ValueError):
        os.close(report)
        raise
    finally:
        os.close(report_end)
    try:
        failed = await asyncio.to_thread(_read_all, report)
    except asyncio.CancelledError:
        process.kill()
        process.wait()
        raise
    if failed:
        await asyncio.to_thread(process.wait)
        raise OSError(int(failed), os.strerror(int(failed)))
    return process


def _fork(plan: LaunchPlan, output: int, report: int) -> subprocess.Popen[bytes]:
    # By the event loop's thread, which lives as long as the agent: the kernel ends a child with
    # the thread that started it. By subprocess, not by the loop: uvloop runs Python in the child
    # before it execs, and marks nothing that the agent has open as not to be inherited.
    return subprocess.Popen(
        [*_BECOME, str(os.getpid()), str(report), *plan.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=plan.environment,
        cwd=plan.folder,
        start_new_session=True,
        pass_fds=(report,),
    )


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


def _watch(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """Its exit status, when it has ended, and what it left behind with it.

    Raises OSError: it cannot be watched, and was ended.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        _kill_group(process.pid)
        process.wait()
        raise

    def end() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        # Before it is waited for: after that, its number may be that of others.
        _kill_group(process.pid)
        status = process.wait()
        if not ended.cancelled():
            ended.set_result(status)

    loop.add_reader(descriptor, end)
    return ended


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
