"""Marks, floods, and links that end, at the gateway's end."""

import pytest

from sagehen.link import client as client_module
from sagehen.link import client_stream
from sagehen.link.begun_marks import open_begun_marker
from sagehen.link.client import LinkClient
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    INLINE_BYTES,
    LARGE_ANSWER,
    SLOTS,
    VERSION,
    WELCOME,
    WINDOW,
    WINDOW_BYTES,
    encode_frame,
    encode_refusal,
    encode_settings,
    encode_window,
    read_settings,
)
from support.clock import HandClock
from support.fixtures.gateway import eventually
from support.link_house import House
from support.links import frames_in, settle


@pytest.fixture
async def house(tmp_path):
    return House(tmp_path)


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
