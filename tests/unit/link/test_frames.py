"""Frames as bytes: any stream of them, cut anywhere, and streams of anything else."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.link.frames import (
    ANSWER,
    DATA,
    END,
    FRAME_HEAD_BYTES,
    INLINE_BYTES,
    MAX_HEAD_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_REASON_BYTES,
    REFUSAL,
    REQUEST,
    SESSION,
    WELCOME,
    FrameReader,
    LinkError,
    body_length,
    encode_frame,
    encode_length,
    encode_refusal,
    encode_settings,
    encode_window,
    read_reason,
    read_settings,
    window_bytes,
)
from support.caller import cut, cuts, some

FRAMES = st.lists(
    st.tuples(
        st.integers(1, SESSION),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**16 - 1),
        st.binary(max_size=40),
        st.binary(max_size=200),
    ),
    min_size=1,
    max_size=6,
)


def encoded(frames) -> bytes:
    return b"".join(
        encode_frame(kind, number, head, body, status, flags)
        for kind, flags, number, status, head, body in frames
    )


def read(pieces) -> tuple[FrameReader, list]:
    reader, frames = FrameReader(), []
    for piece in pieces:
        frames += reader.feed(piece)
    return reader, frames


def joined(frames) -> list:
    """With the parts of DATA frames together again."""
    whole: list = []
    for kind, flags, number, status, head, body in frames:
        if kind == DATA and not head:
            status = 0  # which means nothing there, and parts do not have
        if whole and kind == DATA and not head:
            last_kind, last_flags, last_number, _, last_head, last_body = whole[-1]
            is_part = last_kind == DATA and not last_head and not last_flags & END
            if is_part and last_number == number and last_flags | END == flags | END:
                whole[-1] = (DATA, flags, number, 0, b"", last_body + body)
                continue
        whole.append((kind, flags, number, status, head, body))
    return whole


@some
@given(FRAMES, cuts)
def test_what_is_encoded_is_read_however_it_is_cut(frames, places):
    reader, got = read(cut(encoded(frames), places))
    assert joined(got) == joined(frames)
    assert reader.fault is None


@some
@given(FRAMES)
def test_a_stream_cut_at_every_byte_is_the_same(frames):
    data = encoded(frames)
    pieces = read(data[at : at + 1] for at in range(len(data)))[1]
    assert joined(pieces) == joined(frames)
    for at in range(len(data)):
        assert joined(read((data[:at], data[at:]))[1]) == joined(frames)


@some
@given(FRAMES, st.binary(min_size=1, max_size=400), cuts)
def test_garbage_takes_no_frame_with_it_that_came_before(frames, garbage, places):
    frames = joined([*frames, (REQUEST, 0, 1, 0, b"", b"")])
    data = encoded(frames) + garbage
    reader, got = read(cut(data, places))
    assert joined(got)[: len(frames)] == frames
    assert joined(read([data])[1]) == joined(got)
    if reader.fault is not None:
        assert reader.feed(encoded(frames)) == []


@some
@given(FRAMES, st.data())
def test_one_changed_byte_changes_nothing_before_it(frames, data):
    raw = bytearray(encoded(frames))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    ends = [0]
    for frame in frames:
        ends.append(ends[-1] + len(encoded([frame])))
    before = sum(end <= at for _, end in pairwise(ends))
    assert read([bytes(raw)])[1][:before] == frames[:before]


@pytest.mark.parametrize("flags", [0, END])
def test_parts_of_a_large_frame_come_as_they_are_received(flags):
    frame = encode_frame(DATA, 7, body=b"abcdefgh", flags=flags)
    reader, behind = FrameReader(), encode_frame(ANSWER, 8, body=b"x", status=200)
    assert reader.feed(frame[:20]) == [(DATA, 0, 7, 0, b"", b"abcd")]
    assert reader.feed(frame[20:22]) == [(DATA, 0, 7, 0, b"", b"ef")]
    assert reader.feed(frame[22:] + behind[:5]) == [(DATA, flags, 7, 0, b"", b"gh")]
    assert reader.feed(behind[5:]) == [(ANSWER, 0, 8, 200, b"", b"x")]
    assert reader.fault is None


def with_head(payload: int, head: int, kind: int = REQUEST) -> bytes:
    frame = bytearray(encode_frame(kind, 7))
    frame[:4], frame[8:12] = payload.to_bytes(4, "little"), head.to_bytes(4, "little")
    return bytes(frame)


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (with_head(0, 0, kind=0), "no frame of kind 0"),
        (with_head(0, 0, kind=SESSION + 1), f"no frame of kind {SESSION + 1}"),
        (with_head(INLINE_BYTES + 1, 0), f"has {INLINE_BYTES + 1} bytes; at most {INLINE_BYTES}"),
        (with_head(2**32 - 1, 0), "The body of a frame has 4294967295 bytes"),
        (with_head(2**32 - 1, 2**32 - 1), "The head of a frame has 4294967295 bytes"),
        (with_head(MAX_HEAD_BYTES + 1, MAX_HEAD_BYTES + 1), "The head of a frame has"),
        (with_head(MAX_PAYLOAD_BYTES, MAX_HEAD_BYTES - 1), "The body of a frame has"),
        (with_head(9, 10), "of 9 bytes says that its head has 10"),
    ],
)
def test_a_frame_that_cannot_be_ends_the_stream_behind_those_before_it(spoilt, message):
    before, behind = encode_frame(ANSWER, 1, b"h", b"b", 200), encode_frame(ANSWER, 2)
    reader = FrameReader()
    assert reader.feed(before + spoilt + behind) == [(ANSWER, 0, 1, 200, b"h", b"b")]
    assert message in reader.fault
    assert reader.feed(behind) == []


def test_the_largest_frame_is_read():
    frame = encode_frame(REQUEST, 1, bytes(MAX_HEAD_BYTES), bytes(INLINE_BYTES))
    ((_, _, _, _, head, body),) = FrameReader().feed(frame)
    assert (len(head), len(body)) == (MAX_HEAD_BYTES, INLINE_BYTES)


def test_a_frame_that_never_ends_takes_bounded_memory():
    reader = FrameReader()
    reader.feed(with_head(MAX_PAYLOAD_BYTES, MAX_HEAD_BYTES))
    piece, most = bytes(1000), 0
    for _ in range(3 * MAX_PAYLOAD_BYTES // len(piece)):
        reader.feed(piece)
        most = max(most, len(reader._rest))
        if reader.fault is not None:
            break
    assert reader.fault is not None  # the zeros behind it are no frame
    assert most < FRAME_HEAD_BYTES + MAX_PAYLOAD_BYTES
    assert sys.getsizeof(reader._rest) < 2 * MAX_PAYLOAD_BYTES


def test_lengths_and_windows():
    assert body_length(encode_length(2**40)) == 2**40
    assert body_length(b"") is None
    with pytest.raises(LinkError, match="8 bytes, not 3"):
        body_length(b"123")
    ((_, _, number, _, _, body),) = FrameReader().feed(encode_window(9, 65536))
    assert (number, window_bytes(body)) == (9, 65536)
    with pytest.raises(LinkError, match="4 bytes, not 5"):
        window_bytes(b"12345")


def test_settings_are_a_json_object():
    ((_, _, _, _, _, body),) = FrameReader().feed(encode_settings(WELCOME, {"version": 1}))
    assert read_settings(body) == {"version": 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"version": ' + b"1" * 60_000 + b"}", "not JSON"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
    ],
    ids=["empty", "no text", "deep", "long number", "list", "null"],
)
def test_other_settings_are_refused(body, message):
    with pytest.raises(LinkError, match=message):
        read_settings(body)


def test_a_reason_is_short_and_one_line_whatever_is_quoted_in_it():
    ((kind, _, number, _, head, body),) = FrameReader().feed(encode_refusal("é\ud800" * 1000))
    assert (kind, number, head) == (REFUSAL, 0, b"")
    assert len(body) <= MAX_REASON_BYTES
    assert read_reason(body).startswith("'é?é?")
    told = read_reason(b"first\nsecond\x1b[31m" + bytes(INLINE_BYTES))
    assert "\n" not in told
    assert "\x1b" not in told
    assert len(told) < 5 * MAX_REASON_BYTES
