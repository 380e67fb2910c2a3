"""The gateway's end of a link: how it opens, and its numbers."""

import asyncio
import os

import pytest

from sagehen.link import client as client_module
from sagehen.link import client_stream
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    HELLO,
    LARGE_ANSWER,
    PREFACE,
    REFUSAL,
    REQUEST,
    SLOTS,
    VERSION,
    WELCOME,
    encode_frame,
    encode_length,
    encode_refusal,
    encode_settings,
    encode_window,
    read_settings,
)
from support.fixtures.gateway import eventually
from support.link_house import TYPE, House
from support.links import frames_in, settle


@pytest.fixture
async def house(tmp_path):
    return House(tmp_path)


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


async def test_where_nobody_listens_requests_are_refused(house):
    async def connect(*_):
        raise ConnectionRefusedError

    house.client._connector = connect
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
