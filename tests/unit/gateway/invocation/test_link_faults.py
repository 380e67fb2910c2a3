"""Invocations over links to containers that are lost, or hostile, as callers see them."""

import asyncio
import os

import pytest

from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    LARGE_ANSWER,
    REQUEST,
    encode_frame,
    encode_length,
)
from support.links import serving

CALLS = 12


def answer(link, frame) -> None:
    """As a container does: with the request's body."""
    kind, _, number, _, _, body = frame
    if kind == REQUEST:
        link.mark(number)
        link.send(encode_frame(ANSWER, number, b"content-type: text/csv\r\n", body, 200))


def hang_up(link, frame) -> None:
    link.transport.abort()


def not_at_all(link, frame) -> None: ...


async def invoke_all(house, count=CALLS, **params):
    return await asyncio.gather(*(house.invoke(b"%d" % n, **params) for n in range(count)))


async def test_requests_share_one_link(house, variant):
    async with serving(house.home.run / "one", answer) as links:
        house.route(variant(f"link:{house.home.run}/one"))
        await house.start()
        answers = await invoke_all(house)
        assert [(got.status, got.body) for got in answers] == [
            (200, b"%d" % number) for number in range(CALLS)
        ]
        assert len(links) == 1
        assert house.outstanding() == 0


async def test_of_a_lost_container_only_begun_requests_are_lost(house, variant, eventually):
    received = []

    def begin_some(link, frame):
        received.append(frame[5])
        if len(received) % 3 == 0:
            link.mark(frame[2])

    ran = []

    def other(link, frame):
        ran.append(frame[5])
        answer(link, frame)

    run = house.home.run
    async with serving(run / "lost", begin_some) as links, serving(run / "other", other):
        house.route(variant(f"link:{run}/lost"))
        await house.start()
        calls = asyncio.create_task(invoke_all(house))
        await eventually(lambda: len(received) == CALLS)
        house.route(variant(f"link:{run}/lost", f"link:{run}/other"))
        await eventually(lambda: len(list(house.gateway._routes.instances())) == 2)
        links[0].transport.abort()
        answers = await calls
    begun = set(received[2::3])
    for number, got in enumerate(answers):
        body = b"%d" % number
        expected = (424, "ModelError") if body in begun else (200, None)
        assert (got.status, got.headers.get("x-amzn-errortype")) == expected
        assert ran.count(body) == (body not in begun)
    assert house.outstanding() == 0


@pytest.mark.parametrize("size", [0, 1, 77, 2**40], ids=["empty", "byte", "odd", "huge"])
async def test_a_container_that_cuts_its_marks_harms_its_own_requests_only(house, variant, size):
    def cut(link, frame):
        os.ftruncate(link.marks, size)
        link.transport.abort()

    run = house.home.run
    async with serving(run / "hostile", cut), serving(run / "honest", answer):
        one, other = variant(f"link:{run}/hostile"), variant(f"link:{run}/honest")
        house.table(house.route_of("hostile", one), house.route_of("honest", other))
        await house.start()
        hostile, honest = await asyncio.gather(
            invoke_all(house, path="/endpoints/hostile/invocations"),
            invoke_all(house, path="/endpoints/honest/invocations"),
        )
    # In a file that has grown there is no mark: there is no other instance, so nobody answers.
    assert {got.status for got in hostile} == ({503} if size > 2**20 else {424})
    assert [got.body for got in honest] == [b"%d" % number for number in range(CALLS)]
    assert house.outstanding() == 0


async def test_a_container_that_wipes_its_marks_has_its_own_requests_sent_again(house, variant):
    """To another instance of the same variant, once: it is its own model that runs twice."""

    def wipe(link, frame):
        link.mark(frame[2])
        os.ftruncate(link.marks, 0)
        os.ftruncate(link.marks, 2**17)
        link.transport.abort()

    run = house.home.run
    async with serving(run / "wiping", wipe), serving(run / "other", answer):
        house.route(variant(f"link:{run}/wiping", f"link:{run}/other"))
        await house.start()
        answers = await invoke_all(house)
    assert {got.status for got in answers} == {200}
    assert house.outstanding() == 0


async def test_a_container_that_always_hangs_up_is_not_tried_for_ever(house, variant):
    run = house.home.run
    async with serving(run / "one", hang_up) as ones, serving(run / "two", hang_up) as twos:
        house.route(variant(f"link:{run}/one", f"link:{run}/two"))
        await house.start()
        answers = await invoke_all(house, 3)
        assert {got.status for got in answers} == {503}
        assert len(ones) + len(twos) <= 6
    assert house.outstanding() == 0


HEAD = b"content-type: text/csv\r\n"


@pytest.mark.parametrize(
    "frames",
    [
        lambda number: bytes(16),
        lambda number: encode_frame(ANSWER, number, b"a: b\r\n\r\nHTTP/1.1 200 OK\r\n", b"x", 200),
        lambda number: encode_frame(ANSWER, number, HEAD, b"x", 101),
        lambda number: encode_frame(DATA, number, b"", b"x", flags=END),
        lambda number: (
            encode_frame(LARGE_ANSWER, number, HEAD, encode_length(5), 200)
            + encode_frame(DATA, number, b"", b"x", flags=END)
        ),
        lambda number: (
            encode_frame(LARGE_ANSWER, number, HEAD, b"", 200) + encode_frame(CANCEL, number)
        ),
        lambda number: encode_frame(REQUEST, number),
        lambda number: encode_frame(CANCEL, number) * 3,
    ],
    ids=["garbage", "lines", "status", "data", "length", "broken off", "request", "cancelled"],
)
async def test_a_caller_of_a_hostile_container_gets_one_answer(house, variant, frames):
    def hostile(link, frame):
        if frame[0] == REQUEST:
            link.send(frames(frame[2]))

    async with serving(house.home.run / "hostile", hostile):
        house.route(variant(f"link:{house.home.run}/hostile"))
        await house.start()
        client = await house.connect()
        for _ in range(2):  # On the same connection: nothing is left on it.
            client.send(house.signed())
            assert (await client.answer()).status == 424
    assert house.outstanding() == 0


async def test_a_longer_answer_than_announced_is_cut_off(house, variant):
    """The rest would be the beginning of the caller's next answer."""
    size = 300_000

    def longer(link, frame):
        number = frame[2]
        if frame[0] == REQUEST:
            link.send(encode_frame(LARGE_ANSWER, number, HEAD, encode_length(size), 200))
            for _ in range(5):
                link.send(encode_frame(DATA, number, b"", bytes(60_000)))
            link.send(encode_frame(DATA, number, b"", b"HTTP/1.1 200 OK", flags=END))

    async with serving(house.home.run / "hostile", longer):
        house.route(variant(f"link:{house.home.run}/hostile"))
        await house.start()
        client = await house.connect()
        client.send(house.signed())
        await client.head()
        assert b"HTTP" not in await client.reader.read()


async def test_a_silent_container_costs_its_callers_their_time(house, variant, eventually):
    cancelled = []

    def silent(link, frame):
        if frame[0] == CANCEL:
            cancelled.append(frame[2])

    async with serving(house.home.run / "silent", silent):
        house.route(variant(f"link:{house.home.run}/silent"))
        await house.start()
        calls = asyncio.create_task(invoke_all(house))
        await eventually(lambda: house.outstanding() == CALLS)
        house.clock.advance(61)
        assert {got.status for got in await calls} == {424}
        await eventually(lambda: len(cancelled) == CALLS)
    assert house.outstanding() == 0


async def test_a_caller_who_leaves_cancels_its_request(house, variant, eventually):
    frames = []
    async with serving(house.home.run / "slow", lambda link, frame: frames.append(frame[:3])):
        house.route(variant(f"link:{house.home.run}/slow"))
        await house.start()
        client = await house.connect()
        client.send(house.signed())
        await eventually(lambda: frames)
        client.close()
        await eventually(lambda: [frame[0] for frame in frames] == [REQUEST, CANCEL])
        assert frames[0][2] == frames[1][2]
    assert house.outstanding() == 0
