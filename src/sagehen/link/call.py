"""One request over a link, on the gateway's side."""

import re
from typing import TYPE_CHECKING

from sagehen.base.errors import SagehenError
from sagehen.http1.client import Receiver
from sagehen.http1.fields import Headers, ParsedLines
from sagehen.link.frames import (
    INLINE_BYTES,
    LARGE_REQUEST,
    REQUEST,
    LinkError,
    encode_frame,
    encode_length,
)
from sagehen.link.stream import BodyReceiver, BodySender

if TYPE_CHECKING:
    from sagehen.link.client_stream import ClientStream

__all__ = ["AnswerError", "AnswerLines", "LinkCall"]

_ANSWER_LINES = re.compile(
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*(?:\r\n|\Z))*"
)


class AnswerError(SagehenError):
    """An answer is not valid; others of the link may be."""


class AnswerLines(ParsedLines):
    """Raises AnswerError for lines that would be read otherwise by the caller."""

    def __missing__(self, lines: bytes) -> Headers:
        if _ANSWER_LINES.fullmatch(lines) is None:
            raise AnswerError("the header lines are not valid")
        return super().__missing__(lines)


def _check_status(status: int) -> None:
    if not 200 <= status < 600:
        raise AnswerError(f"the status is {status}, and not from 200 to 599")


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
                stream.send_large(REQUEST, number, head, whole)
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

    @property
    def is_sent(self) -> bool:
        """Whether the body has left as a whole: a container does not begin before."""
        return self._request_body is None or self._request_body.is_done

    def answered(self, status: int, lines: bytes, body: bytes) -> None:
        """Raises AnswerError."""
        self._stop_sending()
        receiver = self._receiver
        if receiver is None:
            return
        if self._answer_body is not None:
            raise AnswerError("a second answer came")
        _check_status(status)
        receiver.answer_begins(status, self._stream.parsed_lines[lines], len(body))
        # The receiver may have failed, and abandoned this call.
        if body and self._receiver is not None:
            receiver.answer_continues(body)
        if self._receiver is not None:
            self._receiver = None
            receiver.answer_ends()

    def answer_begins(self, status: int, lines: bytes, length: int | None) -> None:
        """Raises AnswerError."""
        if self._answer_body is not None:
            raise AnswerError("a second answer came")
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
