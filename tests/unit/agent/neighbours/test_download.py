"""The stream of an artifact from another node."""

import hashlib

import pytest

from sagehen.agent.neighbours.download import (
    GRACE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    NeighbourError,
    ReceivedStream,
)
from support.clock import HandClock


class Pieces:
    """A connection from which each piece comes after a while."""

    def __init__(self, clock: HandClock, piece: bytes, seconds: float, count: int) -> None:
        self.clock, self.piece, self.seconds = clock, piece, seconds
        self.left = count

    def read(self, size: int) -> bytes:
        if not self.left:
            return b""
        assert size >= len(self.piece)
        self.left -= 1
        self.clock.seconds += self.seconds
        return self.piece


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_what_comes_in_pieces_is_put_together(clock: HandClock) -> None:
    pieces = Pieces(clock, b"abc", 0.1, 7)
    stream = ReceivedStream(pieces.read, clock.monotonic)
    assert stream.read(9) == b"abc" * 3
    assert stream.tell() == 9
    assert stream.read(100) == b"abc" * 4
    assert stream.read(100) == b""
    stream.check_digest(hashlib.sha256(b"abc" * 7).hexdigest())


def test_a_trickle_is_given_up_within_one_read(clock: HandClock) -> None:
    pieces = Pieces(clock, b"x", 10.0, 10_000)
    stream = ReceivedStream(pieces.read, clock.monotonic)
    with pytest.raises(NeighbourError, match="slow: 2 bytes in 20 s"):
        stream.read(10_000)


def test_a_stream_that_is_quick_enough_may_take_long(clock: HandClock) -> None:
    pieces = Pieces(clock, bytes(SLOWEST_BYTES_PER_SECOND), 1.0, int(GRACE_SECONDS) * 2)
    stream = ReceivedStream(pieces.read, clock.monotonic)
    assert len(stream.read(2**30)) == GRACE_SECONDS * 2 * SLOWEST_BYTES_PER_SECOND


def test_one_that_nobody_wants_any_more_ends_with_the_next_piece(clock: HandClock) -> None:
    pieces = Pieces(clock, b"x", 1.0, 10)
    stream = ReceivedStream(pieces.read, clock.monotonic, lambda: pieces.left < 8)
    with pytest.raises(NeighbourError, match="not wanted"):
        stream.read(10)
    assert pieces.left == 7
