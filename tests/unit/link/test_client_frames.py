"""What comes and goes over the gateway's end of a link."""

import os

import pytest

from sagehen.link.frames import (
    CANCEL,
    DATA,
    END,
    HELLO,
    INLINE_BYTES,
    LARGE_ANSWER,
    LARGE_REQUEST,
    REQUEST,
    WINDOW,
    WINDOW_BYTES,
    body_length,
    encode_frame,
    encode_refusal,
    encode_settings,
    encode_window,
)
from support.link_house import TYPE, House
from support.links import Request, settle


@pytest.fixture
async def house(tmp_path):
    return House(tmp_path)


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
