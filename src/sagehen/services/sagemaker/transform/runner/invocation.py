"""One request to the containers of an instance, and its answer in memory."""

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from sagehen.base.errors import SagehenError
from sagehen.http1.fields import Headers
from sagehen.link.upstream import INVOCATIONS, Upstream, Upstreams
from sagehen.services.sagemaker.transform.runner.errors import JobError

__all__ = [
    "Answer",
    "AnswerTooLarge",
    "InstanceLost",
    "Invoker",
    "NotStarted",
    "TimedOut",
    "header_lines",
]

NOT_STARTED = b"x-sagehen-not-started"
"""With 503: the container did not begin, and will not."""
MAX_ANSWER_BYTES = 512 * 2**20
FIRST_PIECE_BYTES = 2**20
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""in the value of a header (RFC 9110, 5.5)"""


class NotStarted(SagehenError):
    """The container did not begin: another may be asked."""


class InstanceLost(SagehenError):
    """The connection ended too early; the container may have worked on the request."""


class TimedOut(SagehenError):
    """The answer was not whole in time."""


class AnswerTooLarge(SagehenError):
    """The answer does not fit into memory."""


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def header_lines(content_type: str | None, accept: str | None) -> bytes:
    """Raises JobError."""
    lines = ""
    for name, value in (("Content-Type", content_type), ("Accept", accept)):
        if value is not None and _FORBIDDEN.search(value):
            raise JobError("ClientError", f"{name} has a forbidden character: {value!a}.")
        lines += f"{name}: {value}\r\n" if value is not None else ""
    return lines.encode()


class Invoker:
    """Asks the containers of an instance, one after another: each gets the answer of the one before
    it, and only the last gets Accept."""

    def __init__(
        self, content_type: str | None, accept: str | None, timeout_seconds: float
    ) -> None:
        """Raises JobError."""
        self.lines = header_lines(content_type, accept)
        """to an only container"""
        self._first_lines = header_lines(content_type, None)
        self._accept = accept
        self.timeout_seconds = timeout_seconds

    async def ask(self, stages: Sequence[Upstreams], payload: bytes) -> Answer:
        """Raises NotStarted, InstanceLost, TimedOut or AnswerTooLarge."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                if len(stages) == 1:
                    return await _ask(stages[0], self.lines, payload)
                answer = await _ask(stages[0], self._first_lines, payload)
                for upstreams in stages[1:]:
                    if not answer.is_success:
                        break
                    accept = self._accept if upstreams is stages[-1] else None
                    lines = header_lines(answer.content_type, accept)
                    answer = await _ask(upstreams, lines, answer.body)
                return answer
        except TimeoutError as error:
            raise TimedOut(f"No answer came within {self.timeout_seconds:g} s.") from error


async def _ask(upstreams: Upstreams, lines: bytes, payload: bytes) -> Answer:
    """Raises NotStarted, InstanceLost or AnswerTooLarge."""
    exchange = _Exchange(upstreams, lines, payload)
    try:
        answer = await exchange.run()
    finally:
        exchange.release()
    if answer.status == 503 and exchange.is_not_started:
        raise NotStarted("The container takes no requests now.")
    return answer


class _Exchange:
    """Gets the calls of the upstreams, and then those of the upstream."""

    def __init__(self, upstreams: Upstreams, lines: bytes, payload: bytes) -> None:
        self._upstreams = upstreams
        self._lines = lines
        self._payload = payload
        self._upstream: Upstream | None = None
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._drained = asyncio.Event()
        self._drained.set()
        self._sending: asyncio.Task[None] | None = None
        self._status = 0
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_ended = False

    async def run(self) -> Answer:
        upstream = self._upstreams.take(self)
        if upstream is not None:
            self.connected(upstream)
        return await self._answer

    def release(self) -> None:
        """Leaves nothing behind, whatever has happened."""
        if self._sending is not None:
            self._sending.cancel()
        if self._upstream is None:
            self._upstreams.forget(self)
        elif not self._is_ended:
            self._upstream.abandon()

    async def _send_rest(self, upstream: Upstream) -> None:
        """Sends a large payload in pieces, as the container takes them."""
        payload = memoryview(self._payload)
        for start in range(FIRST_PIECE_BYTES, len(payload), FIRST_PIECE_BYTES):
            await self._drained.wait()
            if self._is_ended:
                return
            upstream.write(bytes(payload[start : start + FIRST_PIECE_BYTES]))

    @property
    def is_not_started(self) -> bool:
        return self._field(NOT_STARTED) is not None

    def _field(self, field_name: bytes) -> str | None:
        for name, value in self._headers:
            if name.lower() == field_name:
                return value.decode("latin-1")
        return None

    def _fail(self, error: SagehenError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    # Called by the upstreams

    def connected(self, upstream: Upstream) -> None:
        self._upstream = upstream
        payload = self._payload
        if len(payload) <= FIRST_PIECE_BYTES:
            upstream.send(self, INVOCATIONS, self._lines, [payload], len(payload))
        else:
            first = [payload[:FIRST_PIECE_BYTES]]
            upstream.send(self, INVOCATIONS, self._lines, first, len(payload))
            self._sending = asyncio.ensure_future(self._send_rest(upstream))

    def refused(self) -> None:
        self._fail(NotStarted("The container cannot be reached."))

    # Called by the upstream

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status, self._headers = status, headers

    def answer_continues(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            self._fail(AnswerTooLarge(f"The answer has more than {MAX_ANSWER_BYTES} bytes."))

    def answer_ends(self) -> None:
        self._is_ended = True
        if not self._answer.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._answer.set_result(Answer(self._status, body, self._field(b"content-type")))

    def answer_breaks(self) -> None:
        self._is_ended = True
        upstream = self._upstream
        if upstream is not None and upstream.not_begun:
            self._fail(NotStarted("The container ended before it began the request."))
        elif upstream is not None and upstream.fault is not None:
            self._fail(InstanceLost(f"The answer cannot be read: {upstream.fault}."))
        else:
            self._fail(InstanceLost("The connection was lost before the answer was whole."))

    def upstream_full(self) -> None:
        self._drained.clear()

    def upstream_drained(self) -> None:
        self._drained.set()
