"""A gateway's side of one stream to a container: numbers, and what each frame means."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar

from sagehen.link.begun_marks import INDEX_BITS, MAX_INDEX, BegunMarks
from sagehen.link.call import AnswerError, LinkCall
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    HELLO,
    LARGE_ANSWER,
    PREFACE,
    REFUSAL,
    SLOTS,
    VERSION,
    WELCOME,
    WINDOW,
    Frame,
    LinkError,
    body_length,
    encode_frame,
    encode_settings,
    read_reason,
    read_settings,
    window_bytes,
)
from sagehen.link.stream import FrameStream

if TYPE_CHECKING:
    from sagehen.link.client import LinkClient

__all__ = ["ClientStream"]

log = logging.getLogger(__name__)

MAX_GENERATION = (1 << 16) - 1
MAX_IGNORED_FRAMES = 256
"""read without a pause; a few come late for abandoned requests"""
PAUSE_SECONDS_PER_FRAME = 6e-6
"""ten times what such a frame takes to read: a container that sends nothing else leaves this
process to others"""


class ClientStream(FrameStream):
    """One stream to a container, until it breaks."""

    __slots__ = (
        "_calls",
        "_client",
        "_free_numbers",
        "_ignored",
        "_marks",
        "_next_index",
        "opened",
        "parsed_lines",
    )

    call_class: ClassVar[type[LinkCall]] = LinkCall

    def __init__(self, client: "LinkClient", marks: BegunMarks | None) -> None:
        super().__init__()
        self._client = client
        self._marks = marks
        self._calls: dict[int, LinkCall] = {}
        self._next_index = 0
        self._free_numbers: list[int] = []
        """of calls that have ended; the last is reused first, so that few marks are touched"""
        self._ignored = 0
        """frames for nobody, since the last pause"""
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
        call = self._calls[number] = self.call_class(self, number)
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
        self._transport.write(PREFACE + encode_settings(HELLO, self._hello()))

    def _hello(self) -> dict[str, Any]:
        """Returns the settings of the handshake."""
        return {"versions": [VERSION], "begun": self._marks.name if self._marks else None}

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result("The container ended it before the handshake.")
        begun = self._marks.read() if self._marks is not None else None
        calls, self._calls = self._calls, {}
        self._client.stream_lost(self)
        for number, call in calls.items():
            try:
                is_unmarked = begun is not None and number not in begun
                call.breaks(is_unmarked or not call.is_sent)
            except Exception:
                log.exception("The end of a link could not be handled by a request.")
        if self._marks is not None:
            self._marks.close()

    def handle_frames(self, frames: list[Frame]) -> None:
        calls = self._calls
        ignored = 0
        for kind, flags, number, status, head, body in frames:
            if kind == ANSWER:
                call = calls.pop(number, None)
                if call is not None:
                    self._free_numbers.append(number)
                    try:
                        call.answered(status, head, body)
                    except Exception as error:
                        _break_after_error(call, error)
                else:
                    ignored += 1
            else:
                if number not in calls:
                    ignored += 1
                try:
                    self._handle_rare(kind, flags, number, status, head, body)
                except LinkError:
                    raise
                except Exception as error:
                    if (call := calls.get(number)) is not None:
                        self.cancel(number)
                        _break_after_error(call, error)
                    else:
                        log.exception("The end of an answer could not be handled.")
        if ignored:
            self._count_ignored(ignored)
        if not calls or self._client.has_waiting:
            self._client.call_ended(self)

    def _count_ignored(self, frames: int) -> None:
        self._ignored += frames
        if self._ignored > MAX_IGNORED_FRAMES and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_later(self._ignored * PAUSE_SECONDS_PER_FRAME, self._resume_reading)
            self._ignored = 0

    def _resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

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
            raise LinkError(f"The container speaks version {version!r} of the link, not {VERSION}.")
        if self.opened.done():
            raise LinkError("WELCOME came twice.")
        if settings.get("marks") is not True:
            # It has not opened the file, which would say that no request has begun.
            self._distrust_marks()
        elif self._marks is not None:
            self._marks.unlink()
        self.opened.set_result(None)


def _break_after_error(call: LinkCall, error: Exception) -> None:
    """Only the request whose answer or receiver is faulty ends, not the link."""
    if isinstance(error, AnswerError):
        call.fault = str(error)
    else:
        log.exception("An answer could not be handled and is cut off.")
    try:
        call.breaks(not_begun=False)
    except Exception:
        log.exception("The end of a request could not be handled.")
