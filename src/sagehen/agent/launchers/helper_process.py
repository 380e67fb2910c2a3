"""Processes of ours that serve one container from outside of it, and end with it."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sagehen.agent.launchers.orphans import Orphans

__all__ = ["HelperProcess", "read_report", "start_helper"]

log = logging.getLogger(__name__)

START_SECONDS = 30.0
READ_BYTES = 256


class HelperProcess:
    """A child of this process; it ends with this process, or by `end`."""

    def __init__(
        self,
        pid: int,
        name: str,
        orphans: Orphans,
        process: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        """Raises OSError, and ends the process, if it cannot be watched.

        Args:
            process: the same one, if this process has started it itself.
        """
        self.pid = pid
        self._process = process
        self._name = name
        self._orphans = orphans
        self._closing = False
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:
            self._kill()
            self._wait()
            raise
        orphans.expect(pid)
        loop.add_reader(self._descriptor, self._on_end)

    def end(self) -> None:
        self._closing = True
        if not self.ended.done():
            self._kill()

    async def close(self) -> None:
        self.end()
        await asyncio.shield(self.ended)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self) -> int:
        if self._process is not None:
            return self._process.wait()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        status = self._wait()
        self._orphans.forget(self.pid)
        if status != 0 and not self._closing:
            ending = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            log.warning("%s has ended: %s.", self._name, ending)
        if not self.ended.cancelled():
            self.ended.set_result(None)


async def start_helper(
    program: Path, arguments: Sequence[object], descriptors: Sequence[int], orphans: Orphans
) -> HelperProcess:
    """Runs `program AGENT_PID REPORT_FD ARGUMENT …`; returns when it has closed REPORT_FD.

    Raises OSError: it cannot be run, or it wrote this errno.
    """
    report, report_end = os.pipe2(os.O_CLOEXEC)
    try:
        process = _run(program, (os.getpid(), report_end, *arguments), (report_end, *descriptors))
        helper = HelperProcess(process.pid, f"{program.stem} of a container", orphans, process)
    except OSError:
        os.close(report)
        raise
    finally:
        os.close(report_end)
    failure = bytearray()
    try:
        async with asyncio.timeout(START_SECONDS):
            await read_report(report, failure)
    except BaseException:
        await helper.close()
        raise
    if failure:
        await helper.close()
        raise OSError(int(failure), os.strerror(int(failure)))
    return helper


def _run(
    program: Path, arguments: Sequence[object], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    # In the event loop's thread: the kernel ends a child with the thread that started it.
    return subprocess.Popen(
        [sys.executable, "-ISs", str(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        pass_fds=descriptors,
    )


async def read_report(descriptor: int, text: bytearray) -> None:
    """Reads in the event loop: all threads may wait for a slow store."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        part = os.read(descriptor, READ_BYTES)
        text.extend(part)
        if not part and not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, read)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
