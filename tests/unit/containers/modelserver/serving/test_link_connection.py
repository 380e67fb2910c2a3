"""The model server's side of a link, with a gateway that the test plays, and with the real one."""

import asyncio
import os

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving import link_requests
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.containers.modelserver.serving.responses import abandoned
from sagehen.containers.modelserver.serving.server import RECEIVE_SECONDS, ModelServer
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.link import client as client_module
from sagehen.link.begun_marks import BegunMarks
from sagehen.link.client import LinkClient
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
    PREFACE,
    REFUSAL,
    REQUEST,
    SLOTS,
    VERSION,
    WELCOME,
    WINDOW,
    WINDOW_BYTES,
    body_length,
    encode_frame,
    encode_length,
    encode_refusal,
    encode_settings,
    encode_window,
    read_settings,
    window_bytes,
)
from support.caller import answers_in
from support.clock import HandClock
from support.links import Dialler, Pipe, Request, interleaving, settle

HEAD = b"/invocations\naccept: text/csv\r\n"
MEBIBYTE = 2**20


class Gateway:
    """The other side of a link, by hand."""

    def __init__(self, folder, handle=None):
        self.requests = []
        self.clock = HandClock(1.0)
        self.slots = 7
        self.server = ModelServer(
            handle or self.requests.append,
            max_body_bytes=30 * MEBIBYTE,
            clock=self.clock,
            max_answer_bytes=40 * MEBIBYTE,
            slots=lambda: self.slots,
        )
        self.folder = folder
        self.pipe = Pipe(FirstBytes(self.server, folder))
        self.pipe.protocol.connection_made(self.pipe)

    @property
    def connection(self):
        return self.pipe.protocol

    @property
    def frames(self):
        return self.pipe.frames

    def send(self, *frames: bytes) -> None:
        self.pipe.protocol.data_received(b"".join(frames))

    def greet(self, marks=None) -> "Gateway":
        settings = {"versions": [VERSION], "begun": marks}
        self.send(PREFACE, encode_settings(HELLO, settings))
        return self

    def answers(self):
        return {
            number: (status, body)
            for kind, _, number, status, _, body in self.frames
            if kind == ANSWER
        }

    def of(self, *kinds):
        return [frame for frame in self.frames if frame[0] in kinds]

    @property
    def refusal(self) -> str:
        ((_, _, _, _, _, body),) = self.of(REFUSAL)
        return body.decode()

    def sweep(self, seconds):
        self.clock.seconds += seconds
        self.server._look_at_clock()
        for connection in tuple(self.server.connections):
            connection.cut_off_if_overdue(self.server.now)

    @property
    def has_nothing_left(self) -> bool:
        for request in self.requests:
            if request.abandoned:
                request.respond(abandoned())  # as queues do in their time
        return (self.server._awaited, self.server._held_bytes) == (0, 0)


@pytest.fixture
async def gateway(tmp_path):
    return Gateway(tmp_path).greet()


@pytest.fixture
async def stranger(tmp_path):
    """It has not said HELLO."""
    return Gateway(tmp_path)


def request(number, body=b"1,2", head=HEAD) -> bytes:
    return encode_frame(REQUEST, number, head, body)


def begin(number, size, head=HEAD) -> bytes:
    return encode_frame(LARGE_REQUEST, number, head, encode_length(size))


def data(number, body=b"", is_last=False) -> bytes:
    return encode_frame(DATA, number, b"", body, flags=END if is_last else 0)


def large(number, body) -> list[bytes]:
    """With all windows open."""
    pieces = [body[at : at + INLINE_BYTES] for at in range(0, len(body), INLINE_BYTES)]
    last = len(pieces) - 1
    return [
        begin(number, len(body)),
        *(data(number, piece, at == last) for at, piece in enumerate(pieces)),
    ]


class Stream(AnswerStream):
    """Of a worker that the test plays."""

    def __init__(self, first=b""):
        self.taken = 0
        self.was_abandoned = False
        super().__init__(first, self._take, self._abandon)

    def _take(self, count):
        self.taken += count

    def _abandon(self):
        self.was_abandoned = True


# The first bytes, and the handshake


async def test_a_socket_takes_links_and_http(tmp_path):
    http = Gateway(tmp_path)
    for at in range(len(get := b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")):
        http.send(get[at : at + 1])
    http.requests[0].respond(ModelAnswer(200, b"healthy"))
    assert [answer.body for answer in answers_in(http.pipe.written)] == [b"healthy"]
    link = Gateway(tmp_path)
    hello = PREFACE + encode_settings(HELLO, {"versions": [VERSION], "begun": None})
    for at in range(len(hello)):
        link.send(hello[at : at + 1])
    await settle()
    assert [frame[0] for frame in link.frames] == [WELCOME, SLOTS]


@pytest.mark.parametrize("size", range(len(PREFACE)))
async def test_a_connection_may_end_before_it_said_what_it_is(stranger, size):
    stranger.send(PREFACE[:size])
    assert len(stranger.server.connections) == 1
    stranger.pipe.abort()
    await settle()
    assert not stranger.server.connections


async def test_the_welcome_names_the_version_and_whether_there_are_marks(gateway, tmp_path):
    await settle()
    welcome, slots = gateway.frames
    assert read_settings(welcome[5]) == {"version": VERSION, "marks": False}
    assert slots == (SLOTS, 0, 7, 0, b"", b"")
    marks = BegunMarks(tmp_path / "marks")
    other = Gateway(tmp_path).greet("marks")
    await settle()
    assert read_settings(other.frames[0][5])["marks"] is True
    marks.close()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (encode_settings(HELLO, {"versions": [VERSION + 1]}), "run the same version of Sagehen"),
        (encode_settings(HELLO, {"versions": VERSION}), "versions"),
        (encode_settings(HELLO, {}), "versions None"),
        (encode_settings(HELLO, {"versions": ["\ud800"]}), "versions"),
        (encode_frame(HELLO, 0, b"", b"[" * 60_000), "not JSON"),
        (encode_frame(HELLO, 0, b"", b"7"), "no JSON object"),
        (request(1), "must be HELLO"),
        (data(1, b"x"), "must be HELLO"),
        (encode_refusal("reason"), "reason"),
        (bytes(16), "no frame of kind 0"),
    ],
    ids=[
        "newer",
        "no list",
        "none",
        "surrogate",
        "deep",
        "number",
        "request first",
        "data first",
        "refusal",
        "no frame",
    ],
)
async def test_another_handshake_is_refused(stranger, first, message):
    stranger.send(PREFACE, first)
    await settle()
    assert message in stranger.refusal
    assert stranger.pipe.is_lost
    assert not stranger.server.connections
    assert not stranger.requests


async def test_a_second_hello_is_refused(gateway):
    gateway.send(encode_settings(HELLO, {"versions": [VERSION]}))
    await settle()
    assert "twice" in gateway.refusal


@pytest.mark.parametrize("name", ["../marks", "none", 7, ["marks"]])
async def test_marks_that_cannot_be_opened_are_none(tmp_path, name):
    (tmp_path / "folder").mkdir()
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path / "folder").greet(name)
    gateway.send(request(1))
    gateway.requests[0].mark_begun()
    await settle()
    assert read_settings(gateway.frames[0][5])["marks"] is False
    marks.close()


# Requests and answers


async def test_requests_are_answered_in_any_order_and_one_write(gateway):
    await settle()
    gateway.send(*(request(number, b"%d" % number) for number in (1, 2, 3)))
    first, second, third = gateway.requests
    assert (first.method, first.path, first.body) == ("POST", "/invocations", b"1")
    assert first.header(b"accept") == "text/csv"
    before = gateway.pipe.writes
    third.respond(ModelAnswer(200, b"c", "text/csv", (("x-a", "b\r\nc"),)))
    first.respond(ModelAnswer(500, b"a"))
    second.respond(ModelAnswer(204, b"not sent"))
    await settle()
    assert gateway.pipe.writes == before + 1
    assert gateway.answers() == {3: (200, b"c"), 1: (500, b"a"), 2: (204, b"")}
    lines = gateway.of(ANSWER)[0][4]
    assert lines == b"content-type: text/csv\r\nx-a: b  c\r\n"
    assert gateway.has_nothing_left


async def test_a_path_and_headers_are_parsed_each_once(gateway):
    gateway.send(request(1), request(2), request(3, head=b"/models/a/invoke\n"))
    one, same, other = gateway.requests
    assert one.headers is same.headers
    assert (other.path, dict(other.headers)) == ("/models/a/invoke", {})


async def test_heads_that_differ_take_bounded_memory(gateway, monkeypatch):
    monkeypatch.setattr(link_requests, "MAX_KNOWN_HEADS", 10)
    for number in range(100):
        gateway.send(request(number, head=b"/x\na: %d\r\n" % number))
    gateway.send(request(100, head=b"/x\na: %b\r\n" % bytes(5000)))
    assert len(gateway.connection._known_heads) <= 10


async def test_slots_are_reported_with_answers_when_they_have_changed(gateway):
    await settle()
    gateway.send(request(1), request(2))
    for one, slots in zip(gateway.requests, (7, 9), strict=True):
        gateway.slots = slots
        one.respond(ModelAnswer(200))
        await settle()
    assert [frame[0] for frame in gateway.frames[2:]] == [ANSWER, ANSWER, SLOTS]
    assert gateway.frames[-1][2] == 9


@pytest.mark.parametrize("first", [request(1), begin(1, 100)], ids=["small", "large"])
@pytest.mark.parametrize("second", [request(1), begin(1, 100)], ids=["small", "large"])
async def test_a_number_in_use_ends_the_link(gateway, first, second):
    gateway.send(first, second)
    await settle()
    assert "number 1 is in use" in gateway.refusal
    assert gateway.has_nothing_left


async def test_the_number_of_an_answer_that_is_being_sent_is_in_use(gateway):
    gateway.send(request(1))
    gateway.requests[0].respond(ModelAnswer(200, stream=Stream(b"first")))
    gateway.send(request(1))
    await settle()
    assert "number 1 is in use" in gateway.refusal
    assert gateway.has_nothing_left


@pytest.mark.parametrize("kind", [WELCOME, ANSWER, LARGE_ANSWER, SLOTS])
async def test_a_gateway_sends_nothing_that_containers_send(gateway, kind):
    gateway.send(request(1), encode_frame(kind, 1))
    await settle()
    assert f"must not send frames of kind {kind}" in gateway.refusal
    assert gateway.has_nothing_left


async def test_a_server_that_drains_begins_nothing(gateway):
    gateway.server.draining = True
    gateway.send(request(1))
    await settle()
    ((_, _, _, status, lines, _),) = gateway.of(ANSWER)
    assert (status, b"x-sagehen-not-started: 1\r\n" in lines) == (503, True)


async def test_an_answer_with_too_many_header_lines_is_an_error_and_no_end(gateway):
    lines = (("x-a", "b" * MAX_HEAD_BYTES),)
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, b"4", headers=lines))
    stream = Stream(b"first")
    gateway.requests[1].respond(ModelAnswer(200, headers=lines, stream=stream))
    await settle()
    assert [status for status, _ in gateway.answers().values()] == [500, 500]
    assert b"header lines" in gateway.answers()[1][1]
    assert stream.was_abandoned
    assert not gateway.pipe.is_closing()
    assert gateway.has_nothing_left


# Large requests


async def test_a_large_body_is_collected_as_windows_allow(gateway):
    body = os.urandom(WINDOW_BYTES + INLINE_BYTES + 3)
    gateway.send(*large(1, body)[:-1])
    assert not gateway.requests
    gateway.send(large(1, body)[-1])
    assert gateway.requests[0].body == body
    await settle()
    windows = [window_bytes(frame[5]) for frame in gateway.of(WINDOW)]
    assert windows == [WINDOW_BYTES // 2, WINDOW_BYTES // 2]
    gateway.requests[0].respond(ModelAnswer(200))
    assert gateway.has_nothing_left


async def test_several_large_bodies_come_at_once_with_small_requests_between(gateway):
    bodies = {number: os.urandom(3 * INLINE_BYTES + number) for number in range(1, 6)}
    queues = [large(number, body) for number, body in bodies.items()]
    for at, frames in enumerate(zip(*queues, strict=True)):
        gateway.send(*frames, request(100 + at))
    assert [one.body for one in gateway.requests if len(one.body) > 9] == list(bodies.values())
    assert len(gateway.requests) == 5 + len(queues[0])


@pytest.mark.parametrize(
    "frames",
    [
        [begin(1, 3), data(1, b"1234")],
        [begin(1, 3), data(1, b"12", is_last=True)],
        [begin(1, 3), data(1)],
        [encode_frame(LARGE_REQUEST, 1, HEAD)],
        [encode_frame(LARGE_REQUEST, 1, HEAD, b"123")],
    ],
    ids=["too long", "too short", "empty", "no length", "length"],
)
async def test_a_body_that_is_not_what_was_announced_ends_the_link(gateway, frames):
    gateway.send(*frames)
    await settle()
    assert gateway.refusal
    assert not gateway.requests
    assert gateway.has_nothing_left


async def test_more_than_the_window_ends_the_link(gateway):
    """The body waits for memory, so that no window is opened."""
    gateway.send(begin(1, 20 * MEBIBYTE))
    gateway.server.body_budget.most_bytes = 0
    gateway.send(begin(2, 20 * MEBIBYTE))
    gateway.send(*(data(2, bytes(INLINE_BYTES)) for _ in range(WINDOW_BYTES // INLINE_BYTES)))
    assert not gateway.of(REFUSAL)
    gateway.send(data(2, b"1"))
    await settle()
    assert "window" in gateway.refusal
    assert gateway.server.body_budget.reserved_bytes == 0
    assert gateway.server.body_budget.waiting == 0


async def test_a_body_that_is_too_large_is_refused_before_it_comes(gateway):
    gateway.send(begin(1, 30 * MEBIBYTE + 1), data(1, bytes(100)), request(2))
    gateway.requests[0].respond(ModelAnswer(200))
    await settle()
    assert [status for status, _ in gateway.answers().values()] == [413, 200]


async def test_large_bodies_wait_for_memory_and_hold_up_nobody(gateway):
    budget = gateway.server.body_budget
    budget.most_bytes = 20 * MEBIBYTE
    gateway.send(begin(1, 15 * MEBIBYTE), begin(2, 15 * MEBIBYTE))
    for _ in range(WINDOW_BYTES // INLINE_BYTES):
        gateway.send(data(1, bytes(INLINE_BYTES)), data(2, bytes(INLINE_BYTES)))
    gateway.send(request(3))
    await settle()
    assert {frame[2] for frame in gateway.of(WINDOW)} == {1}
    assert len(gateway.requests) == 1
    for _ in range(3):  # Its time counts from when there is memory.
        gateway.sweep(RECEIVE_SECONDS - 1)
        gateway.send(data(1, b"1"))
    gateway.send(encode_frame(CANCEL, 1))
    await settle()
    assert {frame[2] for frame in gateway.of(WINDOW)} == {1, 2}
    gateway.send(encode_frame(CANCEL, 2))
    assert budget.reserved_bytes == 0


async def test_memory_is_held_until_the_answer(gateway):
    body = bytes(9 * MEBIBYTE)
    gateway.send(*large(1, body))
    budget = gateway.server.body_budget
    assert budget.reserved_bytes == len(body)
    gateway.requests[0].respond(ModelAnswer(200))
    assert budget.reserved_bytes == 0


async def test_a_body_that_stops_coming_is_given_up(gateway):
    gateway.send(begin(1, 100), data(1, b"x"))
    gateway.sweep(1)
    gateway.sweep(RECEIVE_SECONDS - 1)
    gateway.send(data(1, b"x"))
    gateway.sweep(2)
    gateway.sweep(RECEIVE_SECONDS)
    assert not gateway.of(CANCEL)
    gateway.sweep(1)
    gateway.send(data(1, b"late"), request(2))
    await settle()
    assert [frame[2] for frame in gateway.of(CANCEL)] == [1]
    assert len(gateway.requests) == 1


async def test_bodies_that_wait_for_memory_are_turned_away_by_a_server_that_drains(gateway):
    gateway.server.body_budget.most_bytes = 0
    gateway.send(begin(1, 10 * MEBIBYTE), begin(2, 10 * MEBIBYTE))
    gateway.server.draining = True
    gateway.connection.turn_away()
    gateway.send(begin(3, 10 * MEBIBYTE))
    await settle()
    assert {number: status for number, (status, _) in gateway.answers().items()} == {
        2: 503,
        3: 503,
    }


# Large answers


async def test_a_large_answer_is_sent_as_windows_allow(gateway):
    body = os.urandom(WINDOW_BYTES + 5)
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, body, "text/csv"))
    gateway.requests[1].respond(ModelAnswer(200, b"small"))
    await settle()
    (head,) = gateway.of(LARGE_ANSWER)
    assert (head[2], head[3], body_length(head[5])) == (1, 200, len(body))
    assert gateway.answers() == {2: (200, b"small")}
    assert 1 in gateway.connection._sending
    gateway.send(encode_window(1, INLINE_BYTES))
    await settle()
    pieces = gateway.of(DATA)
    assert b"".join(piece[5] for piece in pieces) == body
    assert pieces[-1][1] == END
    assert gateway.connection._sending == {}
    gateway.send(encode_window(1, INLINE_BYTES))  # late
    assert not gateway.of(REFUSAL)


async def test_an_answer_over_the_limit_is_an_error(gateway):
    gateway.server.max_answer_bytes = 10
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, bytes(11)))
    stream = Stream(bytes(6))
    gateway.requests[1].respond(ModelAnswer(200, stream=stream))
    stream.add(bytes(6))
    await settle()
    assert gateway.answers()[1][0] == 500
    assert stream.was_abandoned
    assert [frame[2] for frame in gateway.of(CANCEL)] == [2]
    assert gateway.has_nothing_left


async def test_a_streamed_answer_comes_as_it_is_made(gateway):
    gateway.send(request(1))
    stream = Stream(b"first ")
    gateway.requests[0].respond(ModelAnswer(200, content_type="text/plain", stream=stream))
    await settle()
    (head,) = gateway.of(LARGE_ANSWER)
    assert (head[4], head[5]) == (b"content-type: text/plain\r\n", b"")
    stream.add(b"second")
    await settle()
    assert [frame[5] for frame in gateway.of(DATA)] == [b"first ", b"second"]
    stream.end(whole=True)
    await settle()
    assert gateway.of(DATA)[-1][1] == END
    assert gateway.has_nothing_left
    assert gateway.connection._sending == {}


async def test_a_stream_that_breaks_off_is_cancelled(gateway):
    gateway.send(request(1), request(2))
    stream = Stream(b"first")
    gateway.requests[0].respond(ModelAnswer(200, stream=stream))
    stream.end(whole=False)
    gateway.requests[1].respond(ModelAnswer(200))
    await settle()
    assert [(frame[0], frame[2]) for frame in gateway.frames[2:]] == [
        (LARGE_ANSWER, 1),
        (DATA, 1),
        (CANCEL, 1),
        (ANSWER, 2),
    ]
    assert gateway.has_nothing_left


async def test_a_slow_reader_pauses_the_worker_of_its_stream_only(gateway):
    gateway.send(request(1), request(2))
    slow, quick = Stream(b"x"), Stream(b"x")
    for one, stream in zip(gateway.requests, (slow, quick), strict=True):
        one.respond(ModelAnswer(200, stream=stream))
    for _ in range(10):
        slow.add(bytes(INLINE_BYTES))
        quick.add(bytes(INLINE_BYTES))
        await settle()
        gateway.send(encode_window(2, INLINE_BYTES // 2), encode_window(2, INLINE_BYTES // 2))
    assert quick.taken > 9 * INLINE_BYTES
    assert slow.taken <= WINDOW_BYTES + 2 * INLINE_BYTES
    gateway.send(encode_window(1, WINDOW_BYTES))
    await settle()
    assert slow.taken > WINDOW_BYTES + 2 * INLINE_BYTES


# Cancellation


async def test_cancelled_requests_are_answered_by_nothing(gateway):
    gateway.send(request(1), begin(2, 9 * MEBIBYTE), data(2, b"x"), request(3), request(4))
    waiting, streaming, sending = gateway.requests
    stream = Stream(b"first")
    streaming.respond(ModelAnswer(200, stream=stream))
    sending.respond(ModelAnswer(200, bytes(2 * WINDOW_BYTES)))
    await settle()
    before = len(gateway.frames)
    gateway.send(*(encode_frame(CANCEL, number) for number in (1, 2, 3, 4, 4, 77)))
    assert waiting.abandoned
    assert stream.was_abandoned
    assert gateway.server.body_budget.reserved_bytes == 0
    waiting.respond(ModelAnswer(200, b"late"))
    stream.end(whole=False)
    gateway.send(encode_window(4, INLINE_BYTES), data(2, b"late"))
    await settle()
    assert len(gateway.frames) == before
    assert gateway.has_nothing_left


async def test_a_stream_of_a_cancelled_request_is_ended_once(gateway):
    """It waits for room on the link when it is cancelled, and its worker ends it then."""
    fillers = list(range(10, 16))
    gateway.send(*(request(number) for number in (*fillers, 1)))
    *others, one = gateway.requests
    gateway.pipe.is_stalled = True
    for other in others:
        other.respond(ModelAnswer(200, bytes(WINDOW_BYTES)))
    stream = Stream(bytes(INLINE_BYTES))
    one.respond(ModelAnswer(200, stream=stream))
    await settle()
    gateway.send(encode_frame(CANCEL, 1))
    stream.end(whole=False)
    gateway.pipe.go_on()
    await settle(200)
    assert gateway.has_nothing_left
    assert not gateway.of(CANCEL)


async def test_an_abandoned_stream_is_abandoned_when_it_begins(gateway):
    gateway.send(request(1), encode_frame(CANCEL, 1))
    stream = Stream(b"first")
    gateway.requests[0].respond(ModelAnswer(200, stream=stream))
    assert stream.was_abandoned
    assert gateway.has_nothing_left


# Marks


async def test_begun_requests_are_marked_and_cancelled_ones_are_not(tmp_path):
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path).greet("marks")
    one, two = 3 << 16 | 1, 3 << 16 | 2
    gateway.send(request(one), request(two), encode_frame(CANCEL, two))
    for each in gateway.requests:
        each.mark_begun()
    begun = marks.read()
    assert one in begun
    assert two not in begun
    gateway.pipe.abort()
    await settle()
    gateway.requests[0].mark_begun()  # after the end
    marks.close()


@pytest.mark.parametrize("end", ["abort", "refuse"])
async def test_nothing_begins_once_the_link_ends(tmp_path, end):
    """The gateway sends what has no mark to other instances."""
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path).greet("marks")
    gateway.send(request(1 << 16))
    if end == "abort":
        gateway.server.abort()
    else:
        gateway.connection.refuse("reason")
    gateway.requests[0].mark_begun()
    assert gateway.requests[0].abandoned
    assert 1 << 16 not in marks.read()
    await settle()
    assert gateway.has_nothing_left
    marks.close()


# The end


async def test_a_lost_link_abandons_everything(gateway):
    gateway.send(request(1), begin(2, 9 * MEBIBYTE), request(3), request(4))
    waiting, streaming, sending = gateway.requests
    stream = Stream(b"first")
    streaming.respond(ModelAnswer(200, stream=stream))
    sending.respond(ModelAnswer(200, bytes(2 * WINDOW_BYTES)))
    gateway.pipe.abort()
    await settle()
    assert waiting.abandoned
    assert stream.was_abandoned
    waiting.respond(ModelAnswer(200))
    stream.end(whole=True)
    await settle()
    assert gateway.has_nothing_left
    assert gateway.server.body_budget.reserved_bytes == 0
    assert not gateway.server.connections


async def test_a_server_that_drains_ends_the_link_after_what_is_due(gateway):
    gateway.send(request(1), request(2), request(3))
    small, sent, streamed = gateway.requests
    draining = asyncio.create_task(gateway.server.drain())
    await settle()
    stream = Stream(b"first")
    small.respond(ModelAnswer(200))
    sent.respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
    streamed.respond(ModelAnswer(200, stream=stream))
    await settle()
    assert not gateway.pipe.is_closing()
    stream.end(whole=True)
    await settle()
    # A window is missing.
    assert not gateway.pipe.is_closing()
    gateway.send(request(4), encode_window(2, INLINE_BYTES))
    await settle()
    assert gateway.pipe.is_lost
    await draining
    assert sum(len(frame[5]) for frame in gateway.of(DATA) if frame[2] == 2) == WINDOW_BYTES + 1
    assert gateway.answers()[4][0] == 503


async def test_an_answer_without_a_window_ends_with_its_cancellation(gateway):
    gateway.send(request(1))
    gateway.requests[0].respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
    gateway.connection.close()
    await settle()
    assert not gateway.pipe.is_closing()
    gateway.send(encode_frame(CANCEL, 1))
    await settle()
    assert gateway.pipe.is_lost


async def test_neither_answers_nor_links_leave_cycles(tmp_path, kept):
    gateways = []
    for end in ("abort", "refuse"):
        gateway = Gateway(tmp_path).greet()
        gateways.append(gateway)  # its server is none of what is counted
        gateway.send(request(1), *large(2, bytes(2 * INLINE_BYTES)), request(3), request(4))
        gateway.requests[0].respond(ModelAnswer(200, b"4"))
        gateway.requests[1].respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
        gateway.send(encode_window(3, 1))
        whole, broken = Stream(b"x"), Stream(b"x")
        gateway.requests[2].respond(ModelAnswer(200, stream=whole))
        gateway.requests[3].respond(ModelAnswer(200, stream=broken))
        whole.end(whole=True)
        gateway.send(encode_frame(CANCEL, 4))
        await settle()
        getattr(gateway.connection, end)(*(["reason"] if end == "refuse" else []))
        await settle()
        gateway.requests.clear()
        del whole, broken
    await settle()
    assert kept() == {}


# Both sides


class Both(Gateway):
    """A model server, and a real client of it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.dialler = Dialler(lambda: FirstBytes(self.server, folder))
        self.client = LinkClient(f"{folder}/socket", HandClock())


@pytest.fixture
async def both(tmp_path, monkeypatch):
    """A model server that the test answers for, and a client of it."""
    both = Both(tmp_path)
    monkeypatch.setattr(client_module, "connect_to_unix_socket", both.dialler.connect)
    return both


async def test_a_large_body_and_small_requests_share_the_link(both):
    body = os.urandom(25 * MEBIBYTE)
    large = Request(both.client, body)
    small = []
    while not any(len(one.body) > INLINE_BYTES for one in both.requests):
        small.append(Request(both.client, b"small"))
        await settle(2)
        for one in both.requests:
            if one.body == b"small":
                one.respond(ModelAnswer(200, b"4"))
    await settle()
    assert len(small) > 50
    assert sum(one.is_answered for one in small) >= len(small) - 1
    assert interleaving(both.dialler.pipes[0][0].frames) > 50
    received = next(one for one in both.requests if len(one.body) > INLINE_BYTES)
    assert received.body == body
    received.respond(ModelAnswer(200, body))
    await settle(3000)
    assert large.body == body
    assert large.is_answered
    assert both.has_nothing_left


async def test_a_slow_reader_of_a_large_answer_delays_nobody(both):
    slow, quick = Request(both.client, b"1"), Request(both.client, b"2")
    await settle()
    slow.call.pause()
    body = os.urandom(5 * MEBIBYTE)
    for one in both.requests:
        one.respond(ModelAnswer(200, body))
    await settle(1000)
    assert quick.body == body
    assert INLINE_BYTES < len(slow.body) <= WINDOW_BYTES
    assert len(both.dialler.pipes[0][1]._pending) == 0
    slow.call.resume()
    await settle(1000)
    assert slow.body == body


async def test_what_a_killed_container_had_not_begun_is_told_from_the_rest(both):
    requests = [Request(both.client, b"%d" % number) for number in range(10)]
    await settle()
    for one in both.requests[:4]:
        one.mark_begun()
    both.dialler.pipes[0][1].abort()
    await settle()
    assert all(one.is_broken for one in requests)
    assert [one.call.not_begun for one in requests] == [False] * 4 + [True] * 6
