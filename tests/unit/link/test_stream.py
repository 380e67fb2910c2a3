"""One side of a link: writes, windows, and the end after a fault."""

import pytest

from sagehen.link import stream as stream_module
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    INLINE_BYTES,
    REFUSAL,
    REQUEST,
    WINDOW,
    WINDOW_BYTES,
    LinkError,
    encode_frame,
    read_reason,
    window_bytes,
)
from sagehen.link.stream import WRITE_BUFFER_BYTES, BodyReceiver, BodySender, FrameStream
from support.fixtures.gateway import eventually
from support.links import Pipe, interleaving, settle

SMALL = encode_frame(CANCEL, 1)


class Side(FrameStream):
    """Keeps what it receives."""

    def __init__(self):
        super().__init__()
        self.got = []
        self.problem = None
        self.lost = False
        self.pipe = Pipe(self)
        self.connection_made(self.pipe)

    def handle_frames(self, frames):
        self.got += frames
        if self.problem is not None:
            raise self.problem

    def connection_lost(self, exc):
        self.lost = True


@pytest.fixture
async def side():
    return Side()


def sent_bytes(pipe, number) -> int:
    return sum(len(body) for kind, _, of, _, _, body in pipe.frames if (kind, of) == (DATA, number))


async def test_all_frames_of_a_turn_leave_in_one_write(side):
    for number in range(100):
        side.send(encode_frame(REQUEST, number, b"/x\n", b"body"))
    assert side.pipe.writes == 0
    await settle()
    assert side.pipe.writes == 1
    assert [frame[2] for frame in side.pipe.frames] == list(range(100))


async def test_nothing_is_written_behind_the_end(side):
    side.send(SMALL)
    side.pipe.close()
    await settle()
    side.send(SMALL)
    await settle()
    assert side.pipe.writes == 0


async def test_a_large_body_is_sent_as_its_window_allows(side):
    told = []
    sender = BodySender(side, 5, lambda: told.append(1))
    body = bytes(range(256)) * (4 * WINDOW_BYTES // 256)
    sender.add(body)
    sender.end()
    await settle()
    assert sent_bytes(side.pipe, 5) == WINDOW_BYTES
    sender.allow(1)
    sender.allow(INLINE_BYTES)
    await settle()
    assert sent_bytes(side.pipe, 5) == WINDOW_BYTES + 1 + INLINE_BYTES
    assert not told
    for _ in range(3):
        sender.allow(WINDOW_BYTES)
    await settle()
    frames = side.pipe.frames
    assert b"".join(frame[5] for frame in frames) == body
    assert max(len(frame[5]) for frame in frames) == INLINE_BYTES
    assert [frame[1] for frame in frames] == [0] * (len(frames) - 1) + [END]
    assert sender.is_done
    assert told == [1]


async def test_a_body_without_bytes_is_its_end_only(side):
    sender = BodySender(side, 5)
    sender.end()
    await settle()
    assert side.pipe.frames == [(DATA, END, 5, 0, b"", b"")]


async def test_the_end_may_come_when_all_is_sent(side):
    sender = BodySender(side, 5)
    sender.add(b"abc")
    assert not sender.is_full
    assert not sender.is_done
    sender.end()
    await settle()
    assert [(frame[1], frame[5]) for frame in side.pipe.frames] == [(0, b"abc"), (END, b"")]


@pytest.mark.parametrize("more", [0, 1, 2**32 - 1])
async def test_no_more_is_allowed_than_was_sent(side, more):
    sender = BodySender(side, 5)
    with pytest.raises(LinkError, match="not due"):
        sender.allow(more)


async def test_large_bodies_take_turns_and_small_messages_pass_them(side):
    """With all windows open, no more waits in front of a small message than the buffer has."""
    senders = [BodySender(side, number) for number in range(8)]
    side.pipe.is_stalled = True
    for sender in senders:
        sender.add(bytes(WINDOW_BYTES))
        sender.end()
    await settle()
    side.send(encode_frame(ANSWER, 99, b"", b"small", 200))
    await settle()
    before = side.pipe.frames[: side.pipe.kinds.index(ANSWER)]
    assert sum(len(frame[5]) for frame in before) <= WRITE_BUFFER_BYTES + INLINE_BYTES
    assert side.pipe.pending_bytes < WRITE_BUFFER_BYTES + 2 * INLINE_BYTES
    side.pipe.go_on()
    await settle(200)
    assert all(sender.is_done for sender in senders)
    assert all(sent_bytes(side.pipe, number) == WINDOW_BYTES for number in range(8))
    assert interleaving(side.pipe.frames) > 4


async def test_a_body_that_is_stopped_while_it_waits_sends_and_tells_nothing_more(side):
    told = []
    first, second = (BodySender(side, number, lambda: told.append(1)) for number in (1, 2))
    side.pipe.is_stalled = True
    fillers = [BodySender(side, number) for number in range(10, 16)]
    for sender in (*fillers, first, second):
        sender.add(bytes(WINDOW_BYTES))
    assert first.is_full
    first.stop()
    first.add(b"more")
    assert not first.is_full
    first.end()
    side.pipe.go_on()
    await settle(200)
    assert sent_bytes(side.pipe, 1) == 0
    assert sent_bytes(side.pipe, 2) == WINDOW_BYTES
    assert told == [1]


async def test_a_receiver_allows_what_it_has_received(side):
    receiver = BodyReceiver(side, 3)
    receiver.received(WINDOW_BYTES // 2 - 1, is_last=False)
    await settle()
    assert side.pipe.frames == []
    receiver.received(1, is_last=False)
    await settle()
    ((kind, _, number, _, _, body),) = side.pipe.frames
    assert (kind, number, window_bytes(body)) == (WINDOW, 3, WINDOW_BYTES // 2)


async def test_the_last_piece_allows_nothing(side):
    BodyReceiver(side, 3).received(WINDOW_BYTES, is_last=True)
    await settle()
    assert side.pipe.frames == []


async def test_a_paused_receiver_allows_nothing_until_it_goes_on(side):
    receiver = BodyReceiver(side, 3)
    receiver.pause()
    receiver.received(WINDOW_BYTES, is_last=False)
    await settle()
    assert side.pipe.frames == []
    receiver.resume()
    receiver.resume()
    await settle()
    assert [window_bytes(frame[5]) for frame in side.pipe.frames] == [WINDOW_BYTES]


async def test_more_than_the_window_is_refused(side):
    receiver = BodyReceiver(side, 3)
    receiver.pause()
    receiver.received(WINDOW_BYTES, is_last=False)
    with pytest.raises(LinkError, match="window"):
        receiver.received(1, is_last=True)


async def test_data_without_bytes_is_refused(side):
    """Endless ones would cost the window nothing."""
    receiver = BodyReceiver(side, 3)
    with pytest.raises(LinkError, match="empty"):
        receiver.received(0, is_last=False)
    receiver.received(0, is_last=True)


async def test_what_came_before_a_fault_is_handled_and_nothing_after_it(side):
    side.data_received(SMALL + bytes(16) + SMALL)
    side.data_received(SMALL)
    assert [frame[0] for frame in side.got] == [CANCEL]
    await settle()
    (refusal,) = side.pipe.frames
    assert refusal[0] == REFUSAL
    assert "no frame of kind 0" in read_reason(refusal[5])
    assert side.lost


async def test_the_peer_learns_why_the_link_is_ended(side):
    side.problem = LinkError("It has \ud800, which is no text.")
    side.send(encode_frame(ANSWER, 4))
    side.data_received(SMALL)
    await settle()
    assert side.pipe.kinds == [ANSWER, REFUSAL]
    assert side.pipe.frames[-1][5] == b"It has ?, which is no text."


async def test_a_peer_that_does_not_read_is_not_waited_for(side, monkeypatch):
    monkeypatch.setattr(stream_module, "REFUSAL_SECONDS", 0.0)
    side.pipe.is_stalled = True
    side.refuse("reason")
    assert not side.lost
    await eventually(lambda: side.lost)
    assert side.pipe.was_aborted


async def test_a_body_that_is_sent_leaves_no_cycle(side, kept):
    class Owner:
        def __init__(self):
            self.sender = BodySender(side, 1, self.drained)

        def drained(self): ...

    Owner.__module__ = "sagehen.test"
    for end in ("at once", "by windows", "stopped"):
        owner = Owner()
        owner.sender.add(bytes(WINDOW_BYTES + (end == "by windows")))
        if end == "stopped":
            owner.sender.stop()
        owner.sender.end()
        if end == "by windows":
            owner.sender.allow(1)
        assert owner.sender.is_done
        del owner
        # Else more would wait to be written than large bodies may.
        await settle()
    await settle()
    assert kept() == {}
