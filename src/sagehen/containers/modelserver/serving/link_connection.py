"""A gateway's link to the model server: requests begin at once, and are answered in any order."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.connection import answer_lines
from sagehen.containers.modelserver.serving.link_answers import LargeAnswer, StreamedLinkAnswer
from sagehen.containers.modelserver.serving.link_requests import (
    LargeRequest,
    LinkRequest,
    ParsedLinkHeads,
)
from sagehen.containers.modelserver.serving.responses import (
    answer_head_too_large,
    answer_too_large,
    body_too_large,
    not_started,
)
from sagehen.containers.modelserver.serving.server import (
    LARGE_BYTES,
    RECEIVE_SECONDS,
    ModelServer,
)
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.link.begun_marks import BegunMarker, open_begun_marker
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    HELLO,
    INLINE_BYTES,
    LARGE_ANSWER,
    LARGE_REQUEST,
    MAX_HEAD_BYTES,
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
from sagehen.link.stream import BodyReceiver, FrameStream

__all__ = ["LinkConnection"]

log = logging.getLogger(__name__)

_BODILESS = frozenset((204, 304))
_FIRST_KINDS = frozenset((HELLO, REFUSAL))


class LinkConnection(FrameStream):
    """Collects requests, and sends their answers.

    Args:
        marks_folder: where gateways put their files of marks; None for a link without.
    """

    __slots__ = (
        "_is_closing",
        "_is_open",
        "_known_heads",
        "_marker",
        "_marks_folder",
        "_receiving",
        "_requests",
        "_sending",
        "_server",
        "_slots",
    )

    def __init__(self, server: ModelServer, marks_folder: Path | None) -> None:
        super().__init__()
        self._server = server
        self._marks_folder = marks_folder
        self._marker: BegunMarker | None = None
        self._receiving: dict[int, LargeRequest] = {}
        self._requests: dict[int, LinkRequest] = {}
        """received whole, and not answered"""
        self._sending: dict[int, LargeAnswer] = {}
        """large answers"""
        self._known_heads = ParsedLinkHeads()
        self._slots = 0
        """as the gateway knows them"""
        self._is_open = False
        """HELLO has come"""
        self._is_closing = False

    # Called by the server

    def cut_off_if_overdue(self, now: float) -> None:
        for number, large in tuple(self._receiving.items()):
            if large.waits_for_memory or large.receiving_since is None:
                large.receiving_since = now
            elif now - large.receiving_since > RECEIVE_SECONDS:
                self._drop_receiving(number)
                self.send(encode_frame(CANCEL, number))

    def turn_away(self) -> None:
        """Refuses bodies that wait for memory."""
        for number, large in tuple(self._receiving.items()):
            if large.waits_for_memory:
                self._refuse(number, not_started())

    def close(self) -> None:
        """Closes after sending pending output."""
        self._is_closing = True
        self._close_if_sent()

    def _close_if_sent(self) -> None:
        if self._is_closing and not self._sending:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        self._abandon_all()
        self._transport.abort()

    def refuse(self, reason: str) -> None:
        self._abandon_all()
        super().refuse(reason)

    def _abandon_all(self) -> None:
        """Must come before the end of the link: from that on, the gateway sends requests that have
        no mark to other instances, so none may begin here."""
        receiving, self._receiving = self._receiving, {}
        for large in receiving.values():
            large.drop()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            self._server.abandon(request)
        answers, self._sending = self._sending, {}
        for answer in answers.values():
            answer.abandon()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abandon_all()
        if self._marker is not None:
            self._marker.close()
            self._marker = None
        self._server.lost(self)

    # Receiving

    def handle_frames(self, frames: list[Frame]) -> None:
        server, requests, heads = self._server, self._requests, self._known_heads
        if not self._is_open and frames and frames[0][0] not in _FIRST_KINDS:
            raise LinkError("The first frame of a link must be HELLO.")
        for kind, flags, number, _, head, body in frames:
            if kind == REQUEST:
                if number in requests or number in self._receiving or number in self._sending:
                    raise LinkError(f"The number {number} is in use.")
                path, headers = heads[head]
                request = requests[number] = LinkRequest(self, number, path, headers, body)
                server.begin(request)
            elif kind == CANCEL:
                self._cancel(number)
            elif kind == DATA:
                self._receive(number, body, bool(flags & END))
            elif kind == LARGE_REQUEST:
                self._begin_large(number, head, body_length(body))
            elif kind == WINDOW:
                if (answer := self._sending.get(number)) is not None:
                    answer.sender.allow(window_bytes(body))
            elif kind == HELLO:
                self._welcome(body)
            elif kind == REFUSAL:
                raise LinkError(f"The gateway ended the link: {read_reason(body)}")
            else:
                raise LinkError(f"A gateway must not send frames of kind {kind}.")

    def _welcome(self, body: bytes) -> None:
        """Raises LinkError."""
        if self._is_open:
            raise LinkError("HELLO came twice.")
        settings = read_settings(body)
        versions, marks = settings.get("versions"), settings.get("begun")
        if not isinstance(versions, list) or VERSION not in versions:
            raise LinkError(
                f"The gateway speaks the versions {versions} of the link, and this container "
                f"{VERSION}: run the same version of Sagehen on both sides."
            )
        self._is_open = True
        if isinstance(marks, str) and self._marks_folder is not None:
            with suppress(OSError):
                self._marker = open_begun_marker(self._marks_folder, marks)
        has_marks = self._marker is not None
        self.send(encode_settings(WELCOME, {"version": VERSION, "marks": has_marks}))

    def mark_begun(self, number: int) -> None:
        if self._marker is not None:
            self._marker.mark(number)

    def _begin_large(self, number: int, head: bytes, size: int | None) -> None:
        """Raises LinkError."""
        if number in self._requests or number in self._receiving or number in self._sending:
            raise LinkError(f"The number {number} is in use.")
        if size is None:
            raise LinkError("The length of a large request is missing.")
        if size > self._server.max_body_bytes:
            self._send_answer(number, body_too_large(self._server.max_body_bytes))
            return
        body = BodyReceiver(self, number)
        large = self._receiving[number] = LargeRequest(head, size, body)
        if size <= LARGE_BYTES:
            return
        large.reservation = self._server.body_budget.reserve(size, large.granted)
        if large.waits_for_memory:
            body.pause()
            if self._server.draining:
                self._refuse(number, not_started())

    def _receive(self, number: int, data: bytes, is_last: bool) -> None:
        """Raises LinkError."""
        large = self._receiving.get(number)
        if large is None:
            return  # refused, and the gateway did not know yet
        large.add(data, is_last)
        if not is_last:
            return
        del self._receiving[number]
        path, headers = self._known_heads[large.head]
        request = LinkRequest(self, number, path, headers, b"".join(large.parts))
        request.reservation, large.reservation = large.reservation, None
        self._requests[number] = request
        self._server.begin(request)

    def _refuse(self, number: int, answer: ModelAnswer) -> None:
        self._drop_receiving(number)
        self._send_answer(number, answer)

    def _drop_receiving(self, number: int) -> None:
        self._receiving.pop(number).drop()

    def _cancel(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            self._server.abandon(request)
        elif (answer := self._sending.pop(number, None)) is not None:
            answer.abandon()
            self._close_if_sent()
        elif number in self._receiving:
            self._drop_receiving(number)

    # Answering

    def before_flush(self) -> None:
        slots = self._server.slots()
        if slots != self._slots:
            self._slots = slots
            self._outgoing.append(encode_frame(SLOTS, slots))

    def answered(self, request: ModelRequest) -> None:
        assert isinstance(request, LinkRequest)
        answer = request.answer
        assert answer is not None
        stream = answer.stream
        if stream is None or request.abandoned:
            self._server.end(request)
        if request.abandoned:
            if stream is not None:
                stream.abandon()
            return
        del self._requests[request.number]
        if stream is None:
            self._send_answer(request.number, answer)
        else:
            self._begin_stream(request, answer, stream)

    def _begin_stream(
        self, request: LinkRequest, answer: ModelAnswer, stream: AnswerStream
    ) -> None:
        number = request.number
        answering = StreamedLinkAnswer(self, self._server, request, stream)
        lines = answer_lines(answer.content_type, answer.headers)
        if len(lines) > MAX_HEAD_BYTES:
            answering.abandon()
            self._send_answer(number, answer_head_too_large(len(lines), MAX_HEAD_BYTES))
            return
        self._sending[number] = answering
        self.send(encode_frame(LARGE_ANSWER, number, lines, status=answer.status))
        answering.begin()

    def _send_answer(self, number: int, answer: ModelAnswer) -> None:
        most = self._server.max_answer_bytes
        if len(answer.body) > most:
            answer = answer_too_large(len(answer.body), most)
        lines = answer_lines(answer.content_type, answer.headers)
        if len(lines) > MAX_HEAD_BYTES:
            answer = answer_head_too_large(len(lines), MAX_HEAD_BYTES)
            lines = answer_lines(answer.content_type, ())
        body = b"" if answer.status in _BODILESS else answer.body
        if len(body) <= INLINE_BYTES:
            self.send_large(ANSWER, number, lines, body, answer.status)
            return
        length = encode_length(len(body))
        self.send(encode_frame(LARGE_ANSWER, number, lines, length, answer.status))
        answering = self._sending[number] = LargeAnswer(self, number)
        answering.sender.add(body)
        answering.sender.end()
        self.sent(number, answering)

    def sent(self, number: int, answering: LargeAnswer) -> None:
        """Forgets a large answer that is sent."""
        if answering.sender.is_done:
            self._sending.pop(number, None)
            self._close_if_sent()

    def broke_off(self, number: int) -> None:
        """Tells the gateway that an answer will not be completed."""
        self._sending.pop(number, None)
        self.send(encode_frame(CANCEL, number))
        self._close_if_sent()
