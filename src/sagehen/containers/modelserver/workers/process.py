"""One worker process and its models."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import uuid4

from sagehen.base.errors import SagehenError
from sagehen.containers.leftovers import MARK, end_leftovers
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.load_failures import LoadFailure
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

__all__ = [
    "WORKER_MODULE",
    "StartedWorker",
    "Worker",
    "WorkerDied",
    "WorkerProcess",
    "start_worker",
    "worker_variables",
]

ABORT_SECONDS = 1.0
"""From SIGABRT, which logs the stack, to SIGKILL."""
WORKER_MODULE = "sagehen.containers.modelserver.worker"


class WorkerDied(SagehenError):
    """The process ended before it completed a request."""


class WorkerProcess(Protocol):
    """A child of this process, as `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, number: int) -> None: ...

    def wait(self) -> int: ...


class StartedWorker(NamedTuple):
    process: WorkerProcess
    end: socket.socket
    """the server's"""
    mark: str
    """is unique, and finds the processes that the worker leaves behind"""

    def kill(self) -> None:
        """Ends a worker that nobody uses."""
        self.end.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def worker_variables(environment: Environment) -> dict[str, str]:
    return {**os.environ, **environment.variables, **environment.thread_variables}


def start_worker(python: str, variables: Mapping[str, str]) -> StartedWorker:
    """Runs the worker with these variables alone. Raises OSError.

    To be called on the main thread: the kernel ends the process with the thread that started it.
    """
    mark = uuid4().hex
    own_end, worker_end = socket.socketpair()
    with worker_end:
        try:
            process = _start(python, {**variables, MARK: mark}, worker_end)
        except OSError:
            own_end.close()
            raise
    return StartedWorker(process, own_end, mark)


class Worker:
    """A worker process in use; `since` is the monotonic time. Raises OSError."""

    def __init__(self, started: StartedWorker, since: float) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        """How the process ended, to follow "The process"; set once its descendants are gone too."""
        self.had_more_to_do = False
        """Several calls or loads were active at its end: the culprit is unknown."""
        self.has_answered = False
        """The worker has answered a call."""
        self.queues: dict[int, WorkerQueue] = {}
        self.since = since
        self._mark = started.mark
        self._pending: dict[int, asyncio.Future[FromWorker]] = {}
        self._reason: str | None = None
        self._ending_text: str | None = None
        self._killing: asyncio.TimerHandle | None = None
        self._process = started.process
        self._channel = WorkerChannel(started.end, self._receive)
        self._descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(self._descriptor, self._see_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process died; its descendants may still run."""
        return self._ending_text is not None

    def is_waiting_for(self, model: int) -> bool:
        """Whether a load or unload is pending."""
        return model in self._pending

    def send(self, message: ToWorker, body: bytes = b"") -> None:
        self._channel.send(message, body)

    async def load(self, model: int, folder: str) -> None:
        """Raises WorkerDied, MemoryError or RaisedElsewhere."""
        reply = await self._request(Load(model, folder))
        if isinstance(reply, FailedMessage):
            raise _load_error(reply)

    async def unload(self, model: int) -> None:
        """Unloads a drained model. Raises WorkerDied."""
        await self._request(Unload(model))

    def end(self, reason: str) -> None:
        """Logs the process's stack, then ends it. `reason` replaces its exit status."""
        if self._reason is None and not self.has_ended:
            self._reason = reason
            self._signal(signal.SIGABRT)
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(ABORT_SECONDS, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _request(self, message: Load | Unload) -> FromWorker:
        if self.has_ended:
            raise WorkerDied(f"The worker process of the model's code {self._ending_text}.")
        reply: asyncio.Future[FromWorker] = asyncio.get_running_loop().create_future()
        self._pending[message.model] = reply
        self.send(message)
        try:
            return await reply
        finally:
            del self._pending[message.model]

    def _receive(self, message: FromWorker, body: bytes) -> None:
        queue = self.queues.get(message.model)
        if isinstance(message, Answered):
            self.has_answered = True
            if queue is not None and queue.calls:
                queue.answered(message, body)
        elif isinstance(message, Piece):
            if queue is not None:
                queue.add_piece(body)
        elif isinstance(message, Over):
            if queue is not None:
                queue.end_stream(message.whole)
        elif (reply := self._pending.get(message.model)) is not None and not reply.done():
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
        ending = self._reason or _describe_status(status)
        if self._channel.broken is not None:
            ending = (
                f"wrote what is no message to the server ({self._channel.broken}), and {ending}"
            )
        self._ending_text = ending
        busy = sum(1 for queue in self.queues.values() if queue.calls)
        self.had_more_to_do = busy + len(self._pending) > 1
        for queue in self.queues.values():
            queue.stop()
        for reply in self._pending.values():
            if not reply.done():
                reply.set_exception(
                    WorkerDied(f"The worker process of the model's code {ending} while it loaded.")
                )
        swept = loop.run_in_executor(None, end_leftovers, self._mark)
        swept.add_done_callback(lambda _: self.ended.set_result(ending))


def _start(
    python: str, variables: Mapping[str, str], worker_end: socket.socket
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            python,
            "-m",
            WORKER_MODULE,
            str(worker_end.fileno()),
            str(os.getpid()),
        ],
        stdin=subprocess.DEVNULL,
        env=variables,
        pass_fds=(worker_end.fileno(),),
    )


def _load_error(message: FailedMessage) -> Exception:
    if message.out_of_memory:
        return MemoryError(message.message)
    failure = LoadFailure(message.summary, message.lines, message.permanent)
    return RaisedElsewhere(message.message, failure)


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    hint = "; maybe for want of memory" if -status == signal.SIGKILL else ""
    return f"was ended by {name} ({signal.strsignal(-status)}{hint})"
