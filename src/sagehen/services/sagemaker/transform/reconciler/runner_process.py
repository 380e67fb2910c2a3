"""A runner process of one transform job, as its parent drives it: JSON lines on pipes."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from sagehen.frame.container_relay import RelayNodes
from sagehen.services.sagemaker.transform.progress import RunnerMessage
from sagehen.services.sagemaker.transform.runner_messages import (
    InstanceAddress,
    Instances,
    RunnerSpec,
    Stop,
)

__all__ = ["MakeProcess", "RunnerCommand", "RunnerProcess"]

log = logging.getLogger(__name__)

LONGEST_LINE_BYTES = 64 * 2**20
"""A message may name many keys."""

RunnerCommand = Callable[[], Sequence[str]]
"""returns the program and arguments of a new runner, whose parent is this process"""

_DECODER: msgspec.json.Decoder[RunnerMessage] = msgspec.json.Decoder(RunnerMessage)
_ENCODER = msgspec.json.Encoder()


class RunnerProcess:
    """One process, from its start to its end.

    It ends with this process: the kernel kills it, and its stdin ends.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each message, and at the end."""
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._instances = Instances(instances=())
        self._is_stopping = False
        self.has_job = False
        self.messages: list[RunnerMessage] = []
        """in order; whoever has stored them removes them"""
        self.has_exited = False

    async def start(self, command: Sequence[str]) -> None:
        """Starts the process, which waits for its job. Raises OSError."""
        # Its stderr is this process's: what it logs is in control's log.
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read())

    def begin(self, spec: RunnerSpec) -> None:
        """Comes before all other messages."""
        self.has_job = True
        self._send(spec)

    def set_instances(
        self, instances: tuple[InstanceAddress, ...], nodes: RelayNodes | None = None
    ) -> None:
        message = Instances(instances=instances, nodes=nodes)
        if message != self._instances:
            self._instances = message
            self._send(message)

    def stop(self) -> None:
        """Asks the runner to end; it still tells what it has done."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send(Stop())

    async def kill(self) -> None:
        """Returns once the process has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    def _send(self, message: msgspec.Struct) -> None:
        if self._process is None or self._process.stdin is None or self.has_exited:
            return
        with contextlib.suppress(OSError, RuntimeError):  # it has just ended
            self._process.stdin.write(_ENCODER.encode(message) + b"\n")

    async def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self.messages.append(_DECODER.decode(line))
                self._on_change()
        except (msgspec.MsgspecError, ValueError) as error:
            about = {"action": "runner_garbled", "reason": str(error)[:200]}
            log.error("A runner sent what is no message, and is killed.", extra=about)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        finally:
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
            self.has_exited = True
            self._on_change()


MakeProcess = Callable[[Callable[[], None]], RunnerProcess]
"""takes `on_change`"""
