"""A gateway's side of a link, with containers that the test plays, and with the model server's."""

import asyncio
import os

import pytest

from sagehen.link import client as client_module
from sagehen.link import client_stream
from sagehen.link.begun_marks import open_begun_marker
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
)
from support.clock import HandClock
from support.fixtures.gateway import eventually
from support.links import Container, Dialler, Request, frames_in, settle

TYPE = b"content-type: text/csv\r\n"


class House:
    """A client, and the containers that it has reached, which all keep `welcome`."""

    def __init__(self, folder, monkeypatch):
        self.slots = []
        self.welcome = None
        self.dialler = Dialler(lambda: Container(self.welcome))
        monkeypatch.setattr(client_module, "connect_to_unix_socket", self.dialler.connect)
        self.folder = folder
        self.client = LinkClient(f"{folder}/socket", HandClock(), self.slots.append)

    @property
    def container(self) -> Container:
        return self.dialler.peers[-1]

    @property
    def stream(self):
        return self.dialler.streams[-1]

    def request(self, body=b"", **params) -> Request:
        return Request(self.client, body, **params)

    async def requests(self, count, body=b"") -> list[Request]:
        """Sent, and received by the container."""
        requests = [self.request(body) for _ in range(count)]
        await settle()
        return requests

    def answer(self, request, body=b"", status=200, lines=TYPE) -> bytes:
        return encode_frame(ANSWER, request.call._number, lines, body, status)

    def begin_answer(self, request, size=None, status=200) -> bytes:
        length = b"" if size is None else encode_length(size)
        return encode_frame(LARGE_ANSWER, request.call._number, TYPE, length, status)

    def data(self, request, body=b"", is_last=False) -> bytes:
        return encode_frame(DATA, request.call._number, b"", body, flags=END if is_last else 0)

    @property
    def has_nothing_left(self) -> bool:
        stream = self.stream
        free = stream._free_numbers
        assert len({number & 0xFFFF for number in free}) == len(free), "a number was freed twice"
        return not stream._calls and len(free) == stream._next_index


@pytest.fixture
async def house(tmp_path, monkeypatch):
    return House(tmp_path, monkeypatch)


# The handshake


async def test_the_first_request_opens_the_link(house):
    request = house.request(b"body", lines=b"accept: a\r\n")
    await settle()
    raw = bytes(house.container._received)
    assert raw.startswith(PREFACE)
    hello, first = frames_in(raw)
    assert hello[0] == HELLO
    settings = read_settings(hello[5])
    assert settings["versions"] == [VERSION]
    assert settings["begun"].startswith(f"socket.begun-{os.getpid()}-")
    assert first == (REQUEST, 0, 1 << 16, 0, b"/invocations\naccept: a\r\n", b"body")
    house.container.send(house.answer(request, b"4"))
    assert (request.status, request.headers, request.length, request.body) == (
        200,
        [(b"content-type", b"text/csv")],
        1,
        b"4",
    )
    assert request.is_answered
    assert house.has_nothing_left


async def test_the_file_of_marks_loses_its_name_when_the_container_has_it(house):
    house.request()
    await settle()
    assert list(house.folder.iterdir()) == []


async def test_all_requests_wait_for_one_link(house):
    requests = await house.requests(50)
    assert len(house.dialler.peers) == 1
    assert len(house.container.numbers(REQUEST)) == 50
    assert house.dialler.pipes[0][0].writes == 2  # the handshake, and the requests of a turn
    house.container.send(
        *(house.answer(request, b"%d" % at) for at, request in enumerate(requests))
    )
    assert [request.body for request in requests] == [b"%d" % at for at in range(50)]


@pytest.mark.parametrize(
    "welcome",
    [
        encode_settings(WELCOME, {"version": VERSION + 1, "marks": True}),
        encode_settings(WELCOME, {}),
        encode_settings(WELCOME, {"version": "\ud800"}),
        encode_frame(WELCOME, 0, b"", b"no JSON"),
        encode_refusal("The gateway speaks the versions [1]."),
        encode_frame(REQUEST, 1),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["version", "no version", "surrogate", "no JSON", "refusal", "request", "HTTP"],
)
async def test_another_handshake_refuses_those_who_wait(house, welcome):
    house.welcome = welcome
    requests = await house.requests(3)
    assert all(request.was_refused for request in requests)
    assert list(house.folder.iterdir()) == []
    await settle()
    assert house.container.is_gone
    # The container may be another one by now.
    house.welcome = None
    (request,) = await house.requests(1)
    house.container.send(house.answer(request))
    assert request.is_answered


async def test_nothing_is_sent_before_the_welcome(house):
    house.welcome = encode_frame(SLOTS, 3)
    request = house.request()
    await settle()
    assert request.call is None
    house.container.send(encode_settings(WELCOME, {"version": VERSION, "marks": True}))
    await settle()
    assert request.call is not None
    assert house.slots == [3]


async def test_a_container_that_ends_the_link_at_once_refuses(house):
    house.welcome = b""
    request = house.request()
    await settle()
    house.container.pipe.close()
    await settle()
    assert request.was_refused
    assert list(house.folder.iterdir()) == []


async def test_a_link_that_is_lost_right_after_its_handshake_refuses_those_who_wait(house):
    request = house.request()
    while not house.dialler.streams or not house.stream.opened.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    house.dialler.pipes[0][0]._lose()
    await settle()
    assert request.was_refused or request.call is not None
    if request.call is not None:
        assert request.is_broken
    (again,) = await house.requests(1)
    house.container.send(house.answer(again))
    assert again.is_answered


async def test_silence_is_given_up(house, monkeypatch):
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT_SECONDS", 0.01)
    house.welcome = b""
    request = house.request()
    await eventually(lambda: request.was_refused)
    await settle()
    assert house.container.is_gone
    assert list(house.folder.iterdir()) == []


async def test_a_second_welcome_ends_the_link(house):
    (request,) = await house.requests(1)
    house.container.send(encode_settings(WELCOME, {"version": VERSION, "marks": True}))
    await settle()
    assert request.is_broken
    assert house.container.frames[-1][0] == REFUSAL


async def test_where_nobody_listens_requests_are_refused(house, monkeypatch):
    async def connect(*_):
        raise ConnectionRefusedError

    monkeypatch.setattr(client_module, "connect_to_unix_socket", connect)
    request = house.request()
    await settle()
    assert request.was_refused
    assert list(house.folder.iterdir()) == []


# Numbers


async def test_a_number_is_used_again_with_a_new_generation(house):
    for generation in (1, 2, 3):
        (request,) = await house.requests(1)
        assert request.call._number == generation << 16
        house.container.send(house.answer(request))
    house.stream._free_numbers = [client_stream.MAX_GENERATION << 16]
    (request,) = await house.requests(1)
    assert request.call._number == 1 << 16  # 0 is that of a cell without a mark


async def test_late_frames_of_an_abandoned_request_are_nobodys(house):
    (abandoned,) = await house.requests(1)
    abandoned.call.abandon()
    (request,) = await house.requests(1)
    assert request.call._number & 0xFFFF == abandoned.call._number & 0xFFFF
    old = abandoned.call._number
    house.container.send(
        encode_frame(LARGE_ANSWER, old, TYPE, encode_length(10), 200),
        encode_frame(DATA, old, b"", b"late", flags=END),
        encode_window(old, 5),
        encode_frame(CANCEL, old),
        encode_frame(ANSWER, old, TYPE, b"late", 200),
        house.answer(request, b"4"),
    )
    assert abandoned.events == []
    assert request.body == b"4"
    assert house.has_nothing_left


async def test_with_all_numbers_in_use_the_first_that_is_free_is_taken(house, monkeypatch):
    monkeypatch.setattr(client_stream, "MAX_INDEX", 3)
    first, second, *others = await house.requests(4)
    fourth, fifth = await house.requests(2)
    assert fourth.call is None
    house.container.send(house.answer(second))
    await settle()
    assert fourth.call is not None
    first.call.abandon()
    assert fifth.call is not None
    house.container.send(*(house.answer(request) for request in (*others, fourth, fifth)))
    assert fifth.is_answered
    assert house.has_nothing_left


async def test_who_is_forgotten_is_not_called(house):
    request = house.request()
    house.client.forget(request)
    house.client.forget(request)
    await settle()
    assert request.call is None
    assert not request.was_refused


# Large requests


async def test_a_large_body_follows_in_pieces_as_the_container_allows(house):
    body = os.urandom(2 * WINDOW_BYTES + 7)
    large, small = house.request(body), house.request(b"small")
    await settle()
    head = house.container.frames[0]
    assert head[0] == LARGE_REQUEST
    assert body_length(head[5]) == len(body)
    assert small.call._number in house.container.numbers(REQUEST)
    number = large.call._number
    for _ in range(2):
        house.container.send(encode_window(number, WINDOW_BYTES))
        await settle()
    frames = [frame for frame in house.container.frames if frame[0] == DATA]
    assert b"".join(frame[5] for frame in frames) == body
    assert frames[-1][1] == END
    house.container.send(house.answer(large), house.answer(small))
    assert large.is_answered
    assert house.has_nothing_left


@pytest.mark.parametrize("size", [INLINE_BYTES, INLINE_BYTES + 1])
async def test_the_largest_body_inside_its_frame(house, size):
    await house.requests(1, bytes(size))
    kinds = [frame[0] for frame in house.container.frames]
    assert kinds[0] == (REQUEST if size == INLINE_BYTES else LARGE_REQUEST)


async def test_an_early_answer_ends_the_body(house):
    (request,) = await house.requests(1, bytes(2 * WINDOW_BYTES))
    house.container.send(house.answer(request, b"too large", 413))
    assert (request.status, request.body) == (413, b"too large")
    count = len(house.container.frames)
    request.call.write(b"more")
    house.container.send(encode_window(request.call._number, INLINE_BYTES))
    await settle()
    assert len(house.container.frames) == count
    assert house.has_nothing_left


async def test_windows_that_are_not_due_end_the_link(house):
    (request,) = await house.requests(1, bytes(2 * WINDOW_BYTES))
    house.container.send(encode_window(request.call._number, WINDOW_BYTES + 1))
    await settle()
    assert request.is_broken
    assert house.container.is_gone


async def test_a_body_may_come_later_and_its_owner_is_told_to_pause(house):
    body = os.urandom(3 * WINDOW_BYTES)
    request = Request(house.client, body, at_once=WINDOW_BYTES)
    await settle()
    assert request.events == []
    request.call.write(body[WINDOW_BYTES : 2 * WINDOW_BYTES])
    assert request.events == ["full"]
    house.container.send(encode_window(request.call._number, WINDOW_BYTES))
    assert request.events == ["full", "drained"]
    request.call.write(body[2 * WINDOW_BYTES :])
    house.container.send(encode_window(request.call._number, WINDOW_BYTES))
    await settle()
    frames = [frame for frame in house.container.frames if frame[0] == DATA]
    assert b"".join(frame[5] for frame in frames) == body
    assert frames[-1][1] == END


# Large answers


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_large_answer_comes_in_pieces(house, is_known):
    (request,) = await house.requests(1)
    pieces = WINDOW_BYTES // INLINE_BYTES - 1
    size = pieces * INLINE_BYTES
    house.container.send(house.begin_answer(request, size if is_known else None))
    assert request.length == (size if is_known else None)
    for _ in range(pieces):
        house.container.send(house.data(request, bytes(INLINE_BYTES)))
    assert not request.is_answered
    house.container.send(house.data(request, is_last=True))
    assert request.is_answered
    assert len(request.body) == size
    await settle()
    assert house.container.numbers(WINDOW) == [request.call._number]
    assert house.has_nothing_left


async def test_a_slow_reader_pauses_its_own_answer_only(house):
    slow, other = await house.requests(2)
    slow.call.pause()
    house.container.send(house.begin_answer(slow), house.begin_answer(other))
    for _ in range(4):
        house.container.send(house.data(slow, bytes(INLINE_BYTES)))
        house.container.send(house.data(other, bytes(INLINE_BYTES)))
    await settle()
    assert set(house.container.numbers(WINDOW)) == {other.call._number}
    slow.call.resume()
    await settle()
    assert slow.call._number in house.container.numbers(WINDOW)


async def test_an_answer_may_break_off(house):
    (request,) = await house.requests(1)
    house.container.send(
        house.begin_answer(request),
        house.data(request, b"half"),
        encode_frame(CANCEL, request.call._number),
    )
    assert request.events == ["begins", "continues", "breaks"]
    assert not request.call.not_begun
    assert house.has_nothing_left


@pytest.mark.parametrize(
    "frames",
    [
        lambda house, one: (house.data(one, b"x", is_last=True),),
        lambda house, one: (house.data(one, b"x"),),
        lambda house, one: (house.begin_answer(one, 1), house.data(one, b"xy", is_last=True)),
        lambda house, one: (house.begin_answer(one, 3), house.data(one, b"xy", is_last=True)),
        lambda house, one: (house.begin_answer(one, 2), house.data(one, b"xy"), house.data(one)),
        lambda house, one: (house.begin_answer(one), house.data(one)),
        lambda house, one: (encode_frame(LARGE_ANSWER, one.call._number, TYPE, b"12", 200),),
        lambda house, one: (encode_frame(WINDOW, one.call._number, b"", b"12"),),
        lambda house, one: (encode_frame(REQUEST, one.call._number),),
        lambda house, one: (encode_frame(LARGE_REQUEST, one.call._number),),
        lambda house, one: (encode_settings(HELLO, {"versions": [1]}),),
        lambda house, one: (encode_refusal("reason"),),
        lambda house, one: (bytes(16),),
    ],
    ids=[
        "last data first",
        "data first",
        "too long",
        "too short",
        "empty data",
        "empty data, no length",
        "length",
        "window",
        "request",
        "large request",
        "hello",
        "refusal",
        "no frame",
    ],
)
async def test_what_a_container_must_not_send_ends_the_link_for_all(house, frames):
    one, other = await house.requests(2)
    house.container.send(*frames(house, one), house.answer(other))
    await settle()
    assert one.events[-1] == "breaks"
    assert other.events == ["breaks"]
    # The container lives, and may begin them now.
    assert not one.call.not_begun
    assert not other.call.not_begun
    assert house.container.is_gone
    (again,) = await house.requests(1)
    house.container.send(house.answer(again))
    assert again.is_answered


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("status", [0, 100, 199, 600, 65535])
async def test_only_final_statuses_are_answers(house, status, is_large):
    one, other = await house.requests(2)
    answer = house.begin_answer if is_large else house.answer
    house.container.send(answer(one, status=status), house.answer(other))
    assert one.events == ["breaks"]
    assert f"the status is {status}" in one.call.fault
    await settle()
    assert house.container.numbers(CANCEL) == [one.call._number] * is_large
    assert other.is_answered


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_second_answer_ends_its_own_request(house, is_large):
    one, other = await house.requests(2)
    again = house.begin_answer if is_large else house.answer
    house.container.send(house.begin_answer(one), again(one), house.answer(other))
    assert one.events == ["begins", "breaks"]
    assert one.call.fault == "a second answer came"
    assert other.is_answered
    assert house.has_nothing_left


@pytest.mark.parametrize(
    "lines",
    [
        b"content-type: a\nx: y\r\n",
        b"content-type: a\rx\r\n",
        b"content type: a\r\n",
        b"no colon\r\n",
        b": a\r\n",
        b"content-type: a\0\r\n",
        b"a: b\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
)
async def test_header_lines_cannot_say_more_than_the_container_may(house, lines):
    """Callers would take them for other lines, or for another answer."""
    one, other = await house.requests(2)
    house.container.send(house.answer(one, lines=lines), house.answer(other))
    assert one.events == ["breaks"]
    assert other.is_answered


# Receivers that fail


@pytest.mark.parametrize("raises_in", ["begins", "continues"])
@pytest.mark.parametrize("is_large", [False, True])
async def test_a_receiver_that_raises_ends_its_own_request_only(house, raises_in, is_large):
    one, other = await house.requests(2)
    one.raises_in = raises_in
    if is_large:
        house.container.send(
            house.begin_answer(one), house.data(one, b"x"), house.answer(other, b"4")
        )
        await settle()
        assert house.container.numbers(CANCEL) == [one.call._number]
    else:
        house.container.send(house.answer(one, b"x"), house.answer(other, b"4"))
    assert one.events[-1] == "breaks"
    assert other.body == b"4"
    assert house.has_nothing_left


async def test_a_receiver_that_raises_at_the_end_of_the_link_keeps_nobody_from_it(house):
    one, other = await house.requests(2)
    one.raises_in = "breaks"
    house.container.pipe.abort()
    await settle()
    assert other.is_broken


@pytest.mark.parametrize("abandons_in", ["begins", "continues"])
@pytest.mark.parametrize("is_large", [False, True])
async def test_who_abandons_its_request_hears_nothing_more(house, abandons_in, is_large):
    one, other = await house.requests(2)
    one.abandons_in = abandons_in
    if is_large:
        house.container.send(house.begin_answer(one), house.data(one, b"x", is_last=True))
    else:
        house.container.send(house.answer(one, b"x"))
    house.container.send(house.answer(other))
    assert one.events[-1] == abandons_in
    assert other.is_answered
    assert house.has_nothing_left


# Cancellation


async def test_an_abandoned_request_is_cancelled_once(house):
    (request,) = await house.requests(1, bytes(2 * WINDOW_BYTES))
    request.call.abandon()
    request.call.abandon()
    house.container.send(encode_window(request.call._number, INLINE_BYTES))
    await settle()
    kinds = [frame[0] for frame in house.container.frames]
    assert kinds.count(CANCEL) == 1
    assert kinds[-1] == CANCEL
    assert house.has_nothing_left


# Slots


async def test_slots_are_told_whenever_they_come(house):
    await house.requests(1)
    house.container.send(encode_frame(SLOTS, 7), encode_frame(SLOTS, 9))
    assert house.slots == [7, 9]


# Floods


@pytest.mark.parametrize("kind", [SLOTS, CANCEL, ANSWER, DATA, WINDOW, LARGE_ANSWER])
async def test_a_flood_of_frames_for_nobody_is_read_with_pauses(house, kind):
    """It would take all of this process's time from others."""
    (request,) = await house.requests(1)
    pipe = house.dialler.pipes[0][0]
    frame = encode_frame(kind, 9, b"", b"1234" if kind == WINDOW else b"")
    for _ in range(client_stream.MAX_IGNORED_FRAMES - 10):
        house.container.send(frame)  # in small pieces, too
    assert not pipe.is_paused
    house.container.send(frame * 20)
    assert pipe.is_paused
    await eventually(lambda: not pipe.is_paused)
    house.container.send(house.answer(request))
    assert request.is_answered


async def test_many_answers_at_once_are_no_flood(house):
    requests = await house.requests(1000)
    house.container.send(*(house.answer(request) for request in requests))
    assert all(request.is_answered for request in requests)
    assert not house.dialler.pipes[0][0].is_paused


async def test_a_link_that_ended_in_a_flood_is_not_read_again(house):
    await house.requests(1)
    stream, (pipe, _) = house.stream, house.dialler.pipes[0]
    house.container.send(encode_frame(SLOTS, 9) * 5000)
    house.client.abort()
    stream._resume_reading()
    assert pipe.is_paused


# The end of the link


async def test_marked_requests_have_begun_and_others_have_not(house, monkeypatch):
    """The file has no name after the handshake, so that it is opened in it, as containers do."""
    welcome = encode_settings(WELCOME, {"version": VERSION, "marks": True})
    house.welcome = b""
    house.request()
    await settle()
    hello = frames_in(house.container._received)[0]
    marker = open_begun_marker(house.folder, read_settings(hello[5])["begun"])
    house.container.send(welcome)
    requests = await house.requests(4)
    for request in requests[:2]:
        marker.mark(request.call._number)
    house.container.send(house.begin_answer(requests[3]))
    marker.close()
    house.container.pipe.abort()
    await settle()
    assert [request.is_broken for request in requests] == [True] * 4
    assert [request.call.not_begun for request in requests] == [False, False, True, False]


async def test_without_marks_every_request_has_begun(house):
    """The container could not open the file: it says nothing."""
    house.welcome = encode_settings(WELCOME, {"version": VERSION, "marks": False})
    (request,) = await house.requests(1)
    house.container.pipe.abort()
    await settle()
    assert request.is_broken
    assert not request.call.not_begun
    assert list(house.folder.iterdir()) == []


async def test_where_no_file_can_be_made_the_link_works_without(house, monkeypatch):
    def no_marks(path):
        raise PermissionError(path)

    monkeypatch.setattr(client_module, "BegunMarks", no_marks)
    (request,) = await house.requests(1)
    settings = read_settings(frames_in(house.container._received)[0][5])
    assert settings["begun"] is None
    house.container.pipe.abort()
    await settle()
    assert request.is_broken
    assert not request.call.not_begun


async def test_a_lost_link_is_opened_again(house):
    (first,) = await house.requests(1)
    house.container.pipe.abort()
    await settle()
    assert first.call.not_begun
    (second,) = await house.requests(1)
    assert len(house.dialler.peers) == 2
    house.container.send(house.answer(second))
    assert second.is_answered


async def test_an_open_link_is_closed_with_its_last_request(house):
    first, second = await house.requests(2)
    house.client.close()
    house.client.close_idle(10**9)
    house.container.send(house.answer(first))
    await settle()
    assert not house.client.is_done
    house.container.send(house.answer(second))
    await settle()
    assert second.is_answered
    assert house.client.is_done
    assert house.container.is_gone


async def test_an_idle_link_is_closed_at_once_and_an_unopened_one_is_done(house):
    (request,) = await house.requests(1)
    house.container.send(house.answer(request))
    house.client.close()
    await settle()
    assert house.client.is_done
    unopened = LinkClient("none", HandClock())
    unopened.close()
    assert unopened.is_done


async def test_a_link_that_is_closed_while_it_opens_still_sends_what_waits(house):
    request = house.request()
    house.client.close()
    await settle()
    house.container.send(house.answer(request))
    await settle()
    assert request.is_answered
    assert house.client.is_done


async def test_a_closed_link_that_is_lost_refuses_those_who_wait(house, monkeypatch):
    monkeypatch.setattr(client_stream, "MAX_INDEX", 0)
    first, second = await house.requests(2)
    house.client.close()
    house.container.pipe.abort()
    await settle()
    assert first.is_broken
    assert second.was_refused
    assert house.client.is_done


async def test_aborted_requests_may_still_begin(house):
    (request,) = await house.requests(1)
    house.client.abort()
    await settle()
    assert request.is_broken
    assert not request.call.not_begun
    assert house.client.is_done


async def test_a_link_may_be_aborted_while_it_opens(house):
    house.welcome = b""
    house.request()
    await settle()
    house.client.abort()
    await settle()
    assert house.client.is_done
    assert house.container.is_gone
    assert list(house.folder.iterdir()) == []


# What is left


async def test_neither_requests_nor_links_leave_cycles(house, kept):
    for welcome in (None, encode_refusal("none"), b"rubbish" * 9):
        house.welcome = welcome
        for body in (b"", bytes(2 * WINDOW_BYTES)):
            requests = await house.requests(3, body)
            if welcome is None:
                house.container.send(
                    house.answer(requests[0]),
                    house.begin_answer(requests[1], 1),
                    house.data(requests[1], b"x", is_last=True),
                )
                requests[2].call.abandon()
        if house.client._stream is not None:
            house.container.pipe.abort()
        await settle()
        house.dialler.peers.clear()
        house.dialler.streams.clear()
        house.dialler.pipes.clear()
    del requests
    await settle()
    assert kept() == {}
