"""One worker process and its models."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping

from sagehen.base.errors import SagehenError
from sagehen.containers.leftovers import MARK, end_leftovers
from sagehen.containers.modelserver.serving.responses import RaisedElsewhere
from sagehen.containers.modelserver.workers.channel import WorkerChannel
from sagehen.containers.modelserver.workers.messages import (
    Answered,
    FailedMessage,
    FromWorker,
    Load,
    LoadedMessage,
    Over,
    Piece,
    ToWorker,
    Unload,
    Unloaded,
)
from sagehen.containers.modelserver.workers.worker_queue import WorkerQueue

__all__ = ["Worker", "WorkerDied"]

ABORT_SECONDS = 1.0
"""From SIGABRT, which logs the stack, to SIGKILL."""


class WorkerDied(SagehenError):
    """The process ended before it completed a request."""


class Worker:
    """Runs `python -m sagehen.containers.modelserver.worker`.

    Create it on the main thread: the kernel ends the process with the thread that started it.
    `variables` is its whole environment; the unique `mark` finds processes it leaves behind;
    `since` is the monotonic time. Raises OSError.
    """

    def __init__(self, python: str, variables: Mapping[str, str], mark: str, since: float) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        """How the process ended, to follow "The process"; set once its descendants are gone too."""
        self.had_more_to_do = False
        """Several calls or loads were active at its end: the culprit is unknown."""
        self.proved = False
        """The worker has answered a call."""
        self.lanes: dict[int, WorkerQueue] = {}
        self.since = since
        self._mark = mark
        self._asked: dict[int, asyncio.Future[FromWorker]] = {}
        self._ending: str | None = None
        self._how: str | None = None
        self._killing: asyncio.TimerHandle | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start(python, {**variables, MARK: mark}, theirs)
            except OSError:
                ours.close()
                raise
        self._channel = WorkerChannel(ours, self._take)
        self._descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(self._descriptor, self._see_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process died; its descendants may still run."""
        return self._how is not None

    def is_asked_of(self, model: int) -> bool:
        """Whether a load or unload is pending."""
        return model in self._asked

    def send(self, message: ToWorker, body: bytes = b"") -> None:
        self._channel.send(message, body)

    async def load(self, model: int, folder: str) -> None:
        """Raises WorkerDied, or the code's MemoryError, RaisedElsewhere or SagehenError."""
        said = await self._ask(Load(model, folder))
        if isinstance(said, FailedMessage):
            raise _problem(said)

    async def unload(self, model: int) -> None:
        """Unloads a drained model. Raises WorkerDied."""
        await self._ask(Unload(model))

    def end(self, why: str) -> None:
        """Logs the process's stack, then ends it. `why` replaces its exit status."""
        if self._ending is None and not self.has_ended:
            self._ending = why
            self._signal(signal.SIGABRT)
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(ABORT_SECONDS, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _ask(self, message: Load | Unload) -> FromWorker:
        if self.has_ended:
            raise WorkerDied(f"The worker process of the model's code {self._how}.")
        reply: asyncio.Future[FromWorker] = asyncio.get_running_loop().create_future()
        self._asked[message.model] = reply
        self.send(message)
        try:
            return await reply
        finally:
            del self._asked[message.model]

    def _take(self, message: FromWorker, body: bytes) -> None:
        lane = self.lanes.get(message.model)
        if isinstance(message, Answered):
            self.proved = True
            if lane is not None and lane.calls:
                lane.answered(message, body)
        elif isinstance(message, Piece):
            if lane is not None:
                lane.add_piece(body)
        elif isinstance(message, Over):
            if lane is not None:
                lane.end_stream(message.whole)
        elif (reply := self._asked.get(message.model)) is not None and not reply.done():
            assert isinstance(message, LoadedMessage | FailedMessage | Unloaded)
            reply.set_result(message)

    def _see_end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        status = self._process.wait()
        if self._killing is not None:
            self._killing.cancel()
        self._channel.drain()
        how = self._ending or _said(status)
        if self._channel.broken is not None:
            how = f"wrote what is no message to the server ({self._channel.broken}), and {how}"
        self._how = how
        busy = sum(1 for lane in self.lanes.values() if lane.calls)
        self.had_more_to_do = busy + len(self._asked) > 1
        for lane in self.lanes.values():
            lane.stop()
        for reply in self._asked.values():
            if not reply.done():
                reply.set_exception(
                    WorkerDied(f"The worker process of the model's code {how} while it loaded.")
                )
        swept = loop.run_in_executor(None, end_leftovers, self._mark)
        swept.add_done_callback(lambda _: self.ended.set_result(how))


def _start(
    python: str, variables: Mapping[str, str], theirs: socket.socket
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            python,
            "-m",
            "sagehen.containers.modelserver.worker",
            str(theirs.fileno()),
            str(os.getpid()),
        ],
        stdin=subprocess.DEVNULL,
        env=variables,
        pass_fds=(theirs.fileno(),),
    )


def _problem(said: FailedMessage) -> Exception:
    if said.kind == "memory":
        return MemoryError(said.message)
    if said.kind == "said":
        return SagehenError(said.message)
    return RaisedElsewhere(said.message, said.lines)


def _said(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    hint = "; maybe for want of memory" if -status == signal.SIGKILL else ""
    return f"was ended by {name} ({signal.strsignal(-status)}{hint})"
