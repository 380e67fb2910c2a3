"""Programs of ours that serve one container from outside of it, and end with it."""

import asyncio
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
    """A started program; it ends with its container, with this process, or by `close`."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, orphans: Orphans) -> None:
        """Raises OSError, and ends the program, if it cannot be watched."""
        self._process = process
        self._name = name
        self._orphans = orphans
        self._closing = False
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        try:
            self._descriptor = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        orphans.expect(process.pid)
        loop.add_reader(self._descriptor, self._on_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def close(self) -> None:
        self._closing = True
        if not self.ended.done():
            self._process.kill()
            await asyncio.shield(self.ended)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        status = self._process.wait()
        self._orphans.forget(self._process.pid)
        if status != 0 and not self._closing:
            ending = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            log.warning("%s of a container has ended: %s.", self._name, ending)
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
        helper = HelperProcess(process, program.stem, orphans)
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
