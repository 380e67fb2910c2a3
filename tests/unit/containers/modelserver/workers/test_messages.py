"""Frames between the server and its workers, over a socket pair."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from sagehen.containers.modelserver.workers.messages import (
    MAX_JOINED_BYTES,
    MAX_MESSAGE_BYTES,
    BrokenFrame,
    CallMessage,
    Load,
    MessageReader,
    Taken,
    ToWorker,
    frame,
)

Ends = tuple[socket.socket, MessageReader[ToWorker]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    yield ours, MessageReader(theirs, msgspec.msgpack.Decoder(ToWorker))
    ours.close()
    theirs.close()


def test_messages_in_one_read_keep_their_order_and_bodies(ends: Ends) -> None:
    ours, reader = ends
    messages = [
        (Load(1, "/a"), b""),
        (CallMessage(1, 0, {b"a": b"b"}), b"body"),
        (Taken(1, 0, 9), b""),
    ]
    ours.sendall(b"".join(part for message, body in messages for part in frame(message, body)))
    assert reader.receive() == messages


def test_a_message_that_arrives_in_pieces_is_whole(ends: Ends) -> None:
    ours, reader = ends
    (data,) = frame(Load(1, "/models/a"), b"body")
    for at in range(len(data) - 1):
        ours.sendall(data[at : at + 1])
        assert reader.receive() == []
    ours.sendall(data[-1:])
    assert reader.receive() == [(Load(1, "/models/a"), b"body")]


def test_a_large_body_is_a_piece_of_its_own_and_read_without_its_message(ends: Ends) -> None:
    ours, reader = ends
    body = bytes(range(256)) * (MAX_JOINED_BYTES // 256 + 1)
    head, rest = frame(CallMessage(1, 0, {}), body)
    assert rest is body
    ours.sendall(head + body[:10])
    assert reader.receive() == []
    ours.sendall(body[10:])
    received: list = []
    while not received:
        received = reader.receive()
    assert received == [(CallMessage(1, 0, {}), body)]


def test_an_end_and_nothing_yet_are_told_apart(ends: Ends) -> None:
    ours, reader = ends
    with pytest.raises(BlockingIOError):
        reader.receive()
    ours.close()
    with pytest.raises(EOFError):
        reader.receive()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little") + bytes(4), "a message of"),
        (b"\x01\0\0\0\0\0\0\0x", "Expected"),
    ],
)
def test_what_is_no_frame_is_named(ends: Ends, data: bytes, reason: str) -> None:
    ours, reader = ends
    ours.sendall(data)
    with pytest.raises(BrokenFrame, match=reason):
        reader.receive()


def test_text_that_no_frame_holds_is_refused_before_sending() -> None:
    with pytest.raises(UnicodeEncodeError):
        frame(Load(1, "\ud800"))
