"""A gateway's side of a link: many requests at once to one container, over one stream."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from itertools import count
from os import getpid
from pathlib import Path
from typing import Protocol

from sagehen.base.clock import Clock
from sagehen.http1.client import Receiver
from sagehen.http1.fields import Headers, ParsedLines
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS, connect_to_unix_socket
from sagehen.link.begun_marks import INDEX_BITS, MAX_INDEX, BegunMarks
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    HELLO,
    INLINE_BYTES,
    LARGE_ANSWER,
    LARGE_REQUEST,
    PREFACE,
    REFUSAL,
    REQUEST,
    SLOTS,
    VERSION,
    WELCOME,
    WINDOW,
    Frame,
    LinkError,
    body_length,
    encode_frame,
    encode_length,
    encode_settings,
    read_reason,
    read_settings,
    window_bytes,
)
from sagehen.link.stream import BodyReceiver, BodySender, FrameStream

__all__ = ["LinkCall", "LinkClient", "LinkWaiter"]

log = logging.getLogger(__name__)

MAX_GENERATION = (1 << 16) - 1
_ANSWER_LINES = re.compile(
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*(?:\r\n|\Z))*"
)


class _AnswerLines(ParsedLines):
    """Raises LinkError for lines that would be read otherwise by the caller."""

    def __missing__(self, lines: bytes) -> Headers:
        if _ANSWER_LINES.fullmatch(lines) is None:
            raise LinkError("The header lines of an answer are not valid.")
        return super().__missing__(lines)


def _check_status(status: int) -> None:
    """Raises LinkError."""
    if not 200 <= status < 600:
        raise LinkError(f"An answer has the status {status}; it must be from 200 to 599.")


class LinkWaiter(Protocol):
    """A request that waits for the link."""

    def connected(self, upstream: "LinkCall") -> None: ...

    def refused(self) -> None:
        """Nothing was sent."""


class LinkCall:
    """One request: `send`, then the receiver's calls until the last one or `abandon`."""

    __slots__ = (
        "_answer_body",
        "_bytes_left",
        "_is_paused",
        "_number",
        "_receiver",
        "_request_body",
        "_stream",
        "_unsent",
        "fault",
        "not_begun",
    )

    def __init__(self, stream: "ClientStream", number: int) -> None:
        self._stream = stream
        self._number = number
        self._receiver: Receiver | None = None
        self._request_body: BodySender | None = None
        """of a large request"""
        self._answer_body: BodyReceiver | None = None
        """of a large answer"""
        self._bytes_left: int | None = None
        """of a large answer, if its length is known"""
        self._is_paused = False
        self.not_begun = False
        """lost before the container began it"""
        self.fault: str | None = None
        """why the answer could not be read"""
        self._unsent = 0
        """bytes of a large request that are not added"""

    def send(
        self, receiver: Receiver, path: bytes, header_lines: bytes, body: list[bytes], size: int
    ) -> None:
        """`body`: of `size` bytes; or its first pieces, and the others follow by `write`."""
        self._receiver = receiver
        stream, number = self._stream, self._number
        head = b"%b\n%b" % (path, header_lines)
        if size <= INLINE_BYTES:
            whole = body[0] if len(body) == 1 else b"".join(body)
            if len(whole) == size:
                stream.send(encode_frame(REQUEST, number, head, whole))
                return
        stream.send(encode_frame(LARGE_REQUEST, number, head, encode_length(size)))
        self._request_body = BodySender(stream, number, self._drained)
        self._unsent = size
        for piece in body:
            self.write(piece)

    def write(self, piece: bytes) -> None:
        """Sends more of a body; the receiver is told to pause when too much waits."""
        sender = self._request_body
        if sender is None:
            return
        self._unsent -= len(piece)
        sender.add(piece)
        if not self._unsent:
            sender.end()
        elif sender.is_full and self._receiver is not None:
            self._receiver.upstream_full()

    def pause(self) -> None:
        self._is_paused = True
        if self._answer_body is not None:
            self._answer_body.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._answer_body is not None:
            self._answer_body.resume()

    def abandon(self) -> None:
        """Cancels the request, as nobody wants the answer."""
        self._receiver = None
        self._stop_sending()
        self._stream.cancel(self._number)

    def _drained(self) -> None:
        if self._receiver is not None:
            self._receiver.upstream_drained()

    def _stop_sending(self) -> None:
        if self._request_body is not None:
            self._request_body.stop()

    # Called by the stream

    def answered(self, status: int, lines: bytes, body: bytes) -> None:
        self._stop_sending()
        receiver = self._receiver
        if receiver is None:
            return
        _check_status(status)
        receiver.answer_begins(status, self._stream.parsed_lines[lines], len(body))
        # The receiver may have failed, and abandoned this call.
        if body and self._receiver is not None:
            receiver.answer_continues(body)
        if self._receiver is not None:
            self._receiver = None
            receiver.answer_ends()

    def answer_begins(self, status: int, lines: bytes, length: int | None) -> None:
        """Raises LinkError."""
        if self._answer_body is not None:
            raise LinkError("A second answer came to one request.")
        _check_status(status)
        self._answer_body = body = BodyReceiver(self._stream, self._number)
        if self._is_paused:
            body.pause()
        self._bytes_left = length
        if self._receiver is not None:
            self._receiver.answer_begins(status, self._stream.parsed_lines[lines], length)

    def check_data(self, size: int, is_last: bool) -> None:
        """Raises LinkError."""
        if self._answer_body is None:
            raise LinkError("DATA came before its answer.")
        self._answer_body.received(size, is_last)
        if self._bytes_left is not None:
            self._bytes_left -= size
            if self._bytes_left < 0 or (is_last and self._bytes_left):
                # Else the caller would take the rest for its next answer.
                raise LinkError("An answer has not the length that was announced.")

    def answer_continues(self, data: bytes) -> None:
        if data and self._receiver is not None:
            self._receiver.answer_continues(data)

    def answer_ends(self) -> None:
        self._stop_sending()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.answer_ends()

    def allow(self, more_bytes: int) -> None:
        if self._request_body is not None:
            self._request_body.allow(more_bytes)

    def breaks(self, not_begun: bool) -> None:
        receiver, self._receiver = self._receiver, None
        self._stop_sending()
        self.not_begun = not_begun and self._answer_body is None
        if receiver is not None:
            receiver.answer_breaks()


class ClientStream(FrameStream):
    """One stream to a container, until it breaks."""

    __slots__ = (
        "_calls",
        "_client",
        "_free_numbers",
        "_marks",
        "_next_index",
        "opened",
        "parsed_lines",
    )

    def __init__(self, client: "LinkClient", marks: BegunMarks | None) -> None:
        super().__init__()
        self._client = client
        self._marks = marks
        self._calls: dict[int, LinkCall] = {}
        self._next_index = 0
        self._free_numbers: list[int] = []
        """of calls that have ended; the last is reused first, so that few marks are touched"""
        self.parsed_lines = client.parsed_lines
        self.opened: asyncio.Future[str | None] = self._loop.create_future()
        """why the link could not be opened, or None when it is open"""

    # Called by the client

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def calls(self) -> int:
        return len(self._calls)

    def new_call(self) -> LinkCall | None:
        """Returns None if all numbers are in use."""
        if self._free_numbers:
            number = self._free_numbers.pop()
            generation = (number >> INDEX_BITS) % MAX_GENERATION + 1
            number = generation << INDEX_BITS | number & MAX_INDEX
        elif self._next_index <= MAX_INDEX:
            # Never generation 0, which is that of a cell without a mark.
            number = 1 << INDEX_BITS | self._next_index
            self._next_index += 1
        else:
            return None
        call = self._calls[number] = LinkCall(self, number)
        return call

    def cancel(self, number: int) -> None:
        if self._calls.pop(number, None) is not None:
            self._free_numbers.append(number)
            self.send(encode_frame(CANCEL, number))
            self._client.call_ended(self)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._distrust_marks()
        self._transport.abort()

    def refuse(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_result(reason)
        self._distrust_marks()
        super().refuse(reason)

    def _distrust_marks(self) -> None:
        """The container does not know yet that the link ends here, and may begin more requests."""
        if self._marks is not None:
            self._marks.close()
            self._marks = None

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        settings = {"versions": [VERSION], "begun": self._marks.name if self._marks else None}
        self._transport.write(PREFACE + encode_settings(HELLO, settings))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result("The container ended it before the handshake.")
        begun = self._marks.read() if self._marks is not None else None
        calls, self._calls = self._calls, {}
        self._client.stream_lost(self)
        for number, call in calls.items():
            try:
                call.breaks(begun is not None and number not in begun)
            except Exception:
                log.exception("The end of a link could not be handled by a request.")
        if self._marks is not None:
            self._marks.close()

    def handle_frames(self, frames: list[Frame]) -> None:
        calls = self._calls
        for kind, flags, number, status, head, body in frames:
            if kind == ANSWER:
                call = calls.pop(number, None)
                if call is not None:
                    self._free_numbers.append(number)
                    try:
                        call.answered(status, head, body)
                    except Exception:
                        _break_after_error(call)
            else:
                try:
                    self._handle_rare(kind, flags, number, status, head, body)
                except LinkError:
                    raise
                except Exception:
                    if (call := calls.get(number)) is not None:
                        self.cancel(number)
                        _break_after_error(call)
                    else:
                        log.exception("The end of an answer could not be handled.")
        if not calls or self._client.has_waiting:
            self._client.call_ended(self)

    def _handle_rare(
        self, kind: int, flags: int, number: int, status: int, head: bytes, body: bytes
    ) -> None:
        """Raises LinkError."""
        call = self._calls.get(number)
        if kind == DATA:
            if call is not None:
                self._continue(call, number, body, bool(flags & END))
        elif kind == LARGE_ANSWER:
            if call is not None:
                call.answer_begins(status, head, body_length(body))
        elif kind == WINDOW:
            if call is not None:
                call.allow(window_bytes(body))
        elif kind == CANCEL:
            if call is not None:
                self._end(number)
                call.breaks(not_begun=False)
        elif kind == SLOTS:
            self._client.slots_changed(number)
        elif kind == WELCOME:
            self._welcome(body)
        elif kind == REFUSAL:
            raise LinkError(f"The container ended the link: {read_reason(body)}")
        else:
            raise LinkError(f"A container must not send frames of kind {kind}.")

    def _continue(self, call: LinkCall, number: int, data: bytes, is_last: bool) -> None:
        """Raises LinkError."""
        call.check_data(len(data), is_last)
        call.answer_continues(data)
        # The receiver may have abandoned the call.
        if is_last and number in self._calls:
            self._end(number)
            call.answer_ends()

    def _end(self, number: int) -> None:
        del self._calls[number]
        self._free_numbers.append(number)

    def _welcome(self, body: bytes) -> None:
        """Raises LinkError."""
        settings = read_settings(body)
        version = settings.get("version")
        if version != VERSION:
            raise LinkError(f"The container speaks version {version} of the link, not {VERSION}.")
        if self.opened.done():
            raise LinkError("WELCOME came twice.")
        if settings.get("marks") is not True:
            # It has not opened the file, which would say that no request has begun.
            self._distrust_marks()
        elif self._marks is not None:
            self._marks.unlink()
        self.opened.set_result(None)


def _break_after_error(call: LinkCall) -> None:
    """Only the request whose receiver has failed ends, not the link."""
    log.exception("An answer could not be handled and is cut off.")
    try:
        call.breaks(not_begun=False)
    except Exception:
        log.exception("The end of a request could not be handled.")


class LinkClient:
    """The link to one container at `path`, which is opened for the first request, and again after a
    loss.

    `slots_changed`: called with the requests that the container takes at once, whenever it says so.
    """

    def __init__(
        self, path: str, clock: Clock, slots_changed: Callable[[int], None] = lambda _: None
    ) -> None:
        self._path = path
        self._clock = clock
        self._stream: ClientStream | None = None
        self._waiting: deque[LinkWaiter] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._opened = count(1)
        self.parsed_lines = _AnswerLines()
        self.slots_changed = slots_changed

    def take(self, waiter: LinkWaiter) -> LinkCall | None:
        """Returns None if `waiter` will be called."""
        stream = self._stream
        if stream is not None and stream.is_open:
            call = stream.new_call()
            if call is not None:
                return call
        self._waiting.append(waiter)
        self._open_if_closed()
        return None

    def forget(self, waiter: LinkWaiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def close_idle(self, now: float) -> None:
        """A link costs nothing while it is idle, and stays open."""

    def close(self) -> None:
        """Closes the link when its last request has ended."""
        self._closed = True
        if self._stream is not None:
            self.call_ended(self._stream)

    @property
    def is_done(self) -> bool:
        """Whether it is closed, and the last request has ended."""
        return self._closed and self._stream is None and self._opening is None

    def abort(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._stream is not None:
            self._stream.abort()

    # Called by the stream

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def call_ended(self, stream: ClientStream) -> None:
        if self._stream is not stream:
            return  # the handshake is not over
        while self._waiting and stream.is_open:
            call = stream.new_call()
            if call is None:
                return
            try:
                self._waiting.popleft().connected(call)
            except Exception:
                log.exception("A request could not be sent.")
                call.abandon()
        if self._closed and not stream.calls:
            stream.close()

    def stream_lost(self, stream: ClientStream) -> None:
        if self._stream is stream:
            self._stream = None
            if self._closed:
                self._refuse_waiting()
            elif self._waiting:
                self._open_if_closed()

    def _open_if_closed(self) -> None:
        is_open = self._stream is not None and self._stream.is_open
        if self._opening is None and not is_open:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        stream: ClientStream | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                stream = await self._open_stream()
        except (OSError, LinkError) as error:  # includes TimeoutError
            log.debug("No link can be opened to %s: %s", self._path, error)
        except Exception:
            # Requests must not wait for ever.
            log.exception("No link can be opened to %s.", self._path)
        finally:
            self._opening = None
        if stream is not None and stream.is_open:
            self._stream = stream
            self.call_ended(stream)
        else:
            self._refuse_waiting()

    async def _open_stream(self) -> ClientStream:
        """Raises OSError or LinkError."""
        marks = self._make_marks()
        try:
            stream = await connect_to_unix_socket(
                self._path, lambda: ClientStream(self, marks), self._clock
            )
        except BaseException:
            if marks is not None:
                marks.close()
            raise
        try:
            reason = await stream.opened
        except BaseException:
            stream.abort()
            raise
        if reason is not None:
            raise LinkError(reason)
        return stream

    def _make_marks(self) -> BegunMarks | None:
        path = Path(f"{self._path}.begun-{getpid()}-{next(self._opened)}")
        try:
            return BegunMarks(path)
        except OSError as error:
            # Then a request in flight counts as begun when the link breaks.
            log.warning("The marks of begun requests cannot be kept in %s: %s", path, error)
            return None

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.refused()
