"""The side of a node that takes requests of others, frame by frame."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from sagehen.gateway.peers import door_connection
from sagehen.gateway.peers.messages import PeerRoute, decode_failure, encode_head
from sagehen.link.frames import (
    ANSWER,
    BUSY,
    CANCEL,
    FAILURE,
    FREE,
    GRANT,
    HELLO,
    LARGE_REQUEST,
    PING,
    PREFACE,
    RELEASE,
    REQUEST,
    RESERVE,
    ROUTE,
    WELCOME,
    encode_frame,
    encode_length,
    encode_settings,
)
from support.links import Pipe

LINES = b"\nContent-Type: text/csv\r\n"


class Peer:
    """A gateway of another node, by hand."""

    def __init__(self, house):
        self.house = house
        self.door = house.gateway._cluster._door
        self.pipe = Pipe(self.door.make_connection())
        self.pipe.protocol.connection_made(self.pipe)
        self.send(
            encode_settings(HELLO, {"versions": [1], "begun": None, "cluster_versions": [1]}),
            encode_frame(ROUTE, 7, body=msgspec.json.encode(PeerRoute("price", "Main"))),
            preface=PREFACE,
        )

    def send(self, *frames: bytes, preface: bytes = b"") -> None:
        self.pipe.protocol.data_received(preface + b"".join(frames))

    def reserve(self, number: int, age: float = 0.0, **more) -> None:
        self.send(encode_frame(RESERVE, number, head(age=age, **more)))

    def request(self, number: int, body: bytes = b"1", **more) -> None:
        self.send(encode_frame(REQUEST, number, head(**more) + LINES, body))

    def of(self, *kinds: int):
        return [frame for frame in self.pipe.frames if frame[0] in kinds]

    def numbers(self, kind: int) -> list[int]:
        return [frame[2] for frame in self.of(kind)]

    @property
    def free(self) -> list[int]:
        """free slots as reported"""
        return [frame[3] for frame in self.of(FREE)]


def head(reservation: int = 0, age: float = 0.0, instance: str = "", model: str | None = None):
    return encode_head(7, reservation, age, instance, model)


class Held:
    """A container that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.waiting: list[asyncio.Future] = []

    async def answer(self, asked):
        self.asked.append(asked.body)
        answered = asyncio.get_running_loop().create_future()
        self.waiting.append(answered)
        await answered
        return 200, {}, asked.body

    def let_go(self) -> None:
        self.waiting.pop(0).set_result(None)


@pytest.fixture
async def held(nodes):
    """One node with one instance of one slot."""
    await nodes.start(1)
    held = Held()
    fake = await nodes[0].fake(held.answer)
    nodes.route(nodes.variant(nodes.instance(0, fake, slots=1, instance_id="i-1")))
    return SimpleNamespace(house=nodes[0], container=held, nodes=nodes)


async def test_a_request_without_a_reservation_is_taken_or_refused_at_once(held, eventually):
    peer = Peer(held.house)
    await eventually(lambda: len(peer.of(WELCOME)) == 1)
    peer.request(1)
    peer.request(2)
    await eventually(lambda: held.container.asked == [b"1"])
    assert peer.numbers(BUSY) == [2]
    await eventually(lambda: peer.free[-1:] == [0])
    held.container.let_go()
    await eventually(lambda: peer.numbers(ANSWER) == [1])
    await eventually(lambda: peer.free[-1:] == [1])


async def test_the_oldest_reservation_of_all_gateways_is_granted_first(held, eventually):
    one, other = Peer(held.house), Peer(held.house)
    one.request(1)
    one.reserve(11, age=1.0)
    other.reserve(12, age=3.0)
    other.reserve(13, age=2.0)
    await eventually(lambda: held.container.asked)
    held.container.let_go()
    await eventually(lambda: other.of(GRANT))
    assert [frame[4] for frame in other.of(GRANT)] == [b"i-1"]
    assert (one.numbers(GRANT), other.numbers(GRANT)) == ([], [12])
    other.send(encode_frame(RELEASE, 12))
    await eventually(lambda: other.numbers(GRANT) == [12, 13])
    other.request(2, reservation=13)
    await eventually(lambda: len(held.container.asked) == 2)
    held.container.let_go()
    await eventually(lambda: one.numbers(GRANT) == [11])
    assert held.house.outstanding() == 1, "the slot waits for its request"
    one.pipe.protocol.connection_lost(None)
    await eventually(lambda: held.nodes.have_nothing_left)


async def test_a_slot_whose_request_does_not_come_is_free_again(held, eventually, monkeypatch):
    peer = Peer(held.house)
    peer.reserve(1)
    await eventually(lambda: peer.numbers(GRANT) == [1])
    monkeypatch.setattr(door_connection, "UNUSED_GRANT_SECONDS", -1.0)
    peer.pipe.protocol.look()
    assert held.house.outstanding() == 0
    peer.request(5, reservation=1)
    await eventually(lambda: held.container.asked == [b"1"])
    held.container.let_go()
    await eventually(lambda: peer.numbers(ANSWER) == [5])


async def test_a_cancelled_request_frees_its_slot(held, eventually):
    peer = Peer(held.house)
    peer.request(1)
    await eventually(lambda: held.container.asked)
    peer.send(encode_frame(CANCEL, 1))
    await eventually(lambda: held.nodes.have_nothing_left)
    peer.send(encode_frame(LARGE_REQUEST, 2, head() + LINES, encode_length(100_000)))
    assert held.house.outstanding() == 1, "its slot waits for the body"
    peer.send(encode_frame(CANCEL, 2))
    await eventually(lambda: held.nodes.have_nothing_left)


async def test_what_the_node_does_not_have_has_not_begun(held, eventually):
    peer = Peer(held.house)
    peer.send(encode_frame(ROUTE, 8, body=msgspec.json.encode(PeerRoute("other", "Main"))))
    peer.send(encode_frame(REQUEST, 1, encode_head(8, 0, 0, "", None) + LINES, b"1"))
    peer.request(2, instance="i-gone")
    peer.send(encode_frame(RESERVE, 3, encode_head(8, 0, 0, "", None)))
    await eventually(lambda: peer.numbers(FAILURE) == [1, 2] and peer.numbers(RELEASE) == [3])
    assert not any(decode_failure(frame[5]).is_begun for frame in peer.of(FAILURE))
    assert held.nodes.have_nothing_left


async def test_a_body_beyond_the_memory_is_refused_before_it_comes(held, eventually):
    peer = Peer(held.house)
    size = held.house.gateway._context.body_memory.max_bytes + 1
    peer.send(encode_frame(LARGE_REQUEST, 1, head() + LINES, encode_length(size)))
    await eventually(lambda: peer.numbers(FAILURE) == [1])
    assert held.nodes.have_nothing_left


async def test_a_gateway_that_ends_answers_what_it_has_and_takes_no_more(held, eventually):
    peer = Peer(held.house)
    peer.request(1)
    await eventually(lambda: held.container.asked)
    held.house.gateway._cluster.stop_listening()
    peer.request(2)
    peer.reserve(3)
    await eventually(lambda: peer.numbers(FAILURE) == [2] and peer.numbers(RELEASE) == [3])
    assert held.house.gateway._is_serving
    held.container.let_go()
    await eventually(lambda: peer.numbers(ANSWER) == [1])
    await eventually(lambda: peer.pipe.is_lost)
    assert not held.house.gateway._is_serving


async def test_a_silent_gateway_is_asked_and_then_cut_off(held, eventually):
    peer = Peer(held.house)
    peer.reserve(1)
    await eventually(lambda: peer.numbers(GRANT) == [1])
    for _ in range(2):
        peer.pipe.protocol.look()
    await eventually(lambda: peer.numbers(PING) == [0])
    peer.send(encode_frame(PING, 1))
    for _ in range(3):
        peer.pipe.protocol.look()
    assert not peer.pipe.was_aborted
    peer.pipe.protocol.look()
    assert peer.pipe.was_aborted
    await eventually(lambda: held.nodes.have_nothing_left)
