"""The `process` launcher: a container is a process of this machine in a session of its own."""

import asyncio
import contextlib
import functools
import os
import resource
import signal
from asyncio import subprocess

from sagehen.agent.container_log import ContainerLog
from sagehen.agent.faults import CannotStart
from sagehen.agent.launcher import LaunchPlan
from sagehen.agent.memory import tree_memory_bytes
from sagehen.processes import die_with_parent

__all__ = ["ContainerProcess", "ProcessLauncher"]

LOG_SETTLE_SECONDS = 1.0


class ContainerProcess:
    """A container that runs as a process group."""

    def __init__(self, process: subprocess.Process, log: ContainerLog) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        status = await self._process.wait()
        self._kill_group()
        await asyncio.to_thread(self._log.settle, LOG_SETTLE_SECONDS)
        return status

    def terminate(self) -> None:
        # The main process alone, as `docker stop` does: it tells its own workers.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._kill_group()

    def last_lines(self) -> list[str]:
        return self._log.last_lines()

    async def memory_bytes(self) -> int:
        if self._process.returncode is not None:
            return 0
        return await asyncio.to_thread(tree_memory_bytes, self._process.pid)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class ProcessLauncher:
    """Starts containers as children that cannot outlive the agent."""

    async def start(self, plan: LaunchPlan) -> ContainerProcess:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(os.close, reading)
            try:
                log = ContainerLog(plan.log, plan.log_bytes)
                process = await _spawn(plan, writing)
            except (OSError, ValueError) as error:
                raise CannotStart(f"{plan.command[0]}: {_reason(error)}") from error
            finally:
                os.close(writing)
            on_failure.pop_all()
        log.follow(reading)
        return ContainerProcess(process, log)


async def _spawn(plan: LaunchPlan, output: int) -> subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *plan.command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=plan.environment,
        cwd=plan.folder,
        start_new_session=True,
        preexec_fn=functools.partial(_become_container, os.getpid()),
    )


def _become_container(agent_pid: int) -> None:
    """Runs in the child between fork and exec: does as little as it can."""
    die_with_parent(agent_pid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # uvloop leaves open what the agent itself inherited; marking, not closing, because the pipe
    # that tells the parent of a failed exec is among them.
    for descriptor in os.listdir("/proc/self/fd"):
        if int(descriptor) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(descriptor), False)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
