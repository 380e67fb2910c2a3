"""Streams of frames that a hostile peer of a link sends: valid ones, and random changes of them."""

import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise

from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    FRAME_HEAD_BYTES,
    HELLO,
    INLINE_BYTES,
    LARGE_ANSWER,
    LARGE_REQUEST,
    MAX_HEAD_BYTES,
    REFUSAL,
    REQUEST,
    SLOTS,
    VERSION,
    WELCOME,
    WINDOW,
    WINDOW_BYTES,
    encode_frame,
    encode_length,
    encode_settings,
)

__all__ = ["answers_to", "cut", "mutated", "requests", "welcome"]

HEADS = (
    b"/invocations\ncontent-type: text/csv\r\n",
    b"/invocations\n",
    b"/ping\n",
    b"/models/a/invoke\n",
    b"",
    b"\n\n\n",
    b"/invocations\nno colon\r\n: \r\n\r\nx",
)
LINES = (b"", b"content-type: text/csv\r\n", b"x-sagehen-not-started: 1\r\n", b"a: b\nc: d\r\n")
SIZES = (0, 1, 7, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, WINDOW_BYTES, WINDOW_BYTES + 1)


def requests(rng: random.Random) -> list[bytes]:
    """Returns frames of a gateway after HELLO: most are allowed, some are not."""
    frames: list[bytes] = []
    for at in range(rng.randrange(1, 30)):
        number = rng.choice((1, 1, rng.randrange(4))) << 16 | (at if rng.random() < 0.8 else 0)
        frames += _request(rng, number)
        if rng.random() < 0.3:
            frames.append(encode_frame(CANCEL, number))
        if rng.random() < 0.2:
            frames.append(_window(rng, number))
    if rng.random() < 0.3:
        rng.shuffle(frames)
    return frames


def _request(rng: random.Random, number: int) -> list[bytes]:
    head = rng.choice(HEADS)
    if rng.random() < 0.7:
        return [encode_frame(REQUEST, number, head, b"1,2" if rng.random() < 0.5 else _body(rng))]
    size = rng.choice((*SIZES, 9 * 2**20, 2**30, 2**63))
    first = encode_frame(LARGE_REQUEST, number, head, encode_length(size))
    return [first, *_data(rng, number, min(size, WINDOW_BYTES + 1))]


def answers_to(rng: random.Random, number: int, body: bytes) -> list[bytes]:
    """Returns frames of a container for a request: most are allowed, some are not."""
    lines, status = (
        rng.choice(LINES),
        rng.choice((200, 200, 200, 204, 404, 500, 503, 507, 0, 65535)),
    )
    chance = rng.random()
    if chance < 0.4:
        return [encode_frame(ANSWER, number, lines, body, status)]
    if chance < 0.5:
        return [encode_frame(CANCEL, number)]
    if chance < 0.6:
        return [encode_frame(SLOTS, rng.choice((0, 1, 9, 2**32 - 1))), _window(rng, number)]
    size = rng.choice(SIZES)
    length = rng.choice((b"", encode_length(size), encode_length(size + 1), b"123"))
    head = encode_frame(LARGE_ANSWER, number, lines, length, status)
    frames = [head, *_data(rng, number, size)]
    if rng.random() < 0.2:
        frames.append(encode_frame(ANSWER, number, lines, body, status))
    return frames


def welcome(rng: random.Random) -> bytes:
    version = VERSION if rng.random() < 0.9 else rng.choice((0, 2, "1", None, [1]))
    return encode_settings(WELCOME, {"version": version, "marks": rng.random() < 0.8})


def _data(rng: random.Random, number: int, size: int) -> list[bytes]:
    frames = []
    while size > 0:
        piece = min(size, rng.choice((1, 100, INLINE_BYTES, INLINE_BYTES)))
        if piece < 1000 and rng.random() < 0.9:
            piece = min(size, INLINE_BYTES)
        size -= piece
        end = END if size == 0 and rng.random() < 0.9 else 0
        frames.append(encode_frame(DATA, number, b"", bytes(piece), flags=end))
    return frames or [encode_frame(DATA, number, flags=END)]


def _body(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 40, 5000)))


def _window(rng: random.Random, number: int) -> bytes:
    more = rng.choice((0, 1, INLINE_BYTES, WINDOW_BYTES // 2, WINDOW_BYTES, 2**32 - 1))
    return encode_frame(WINDOW, number, b"", struct.pack("<I", more))


# Changes of a stream

Change = Callable[[list[bytes], random.Random], list[bytes]]


def byte_changed(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames))
    frame = bytearray(frames[at])
    place = rng.randrange(min(len(frame), FRAME_HEAD_BYTES if rng.random() < 0.7 else len(frame)))
    frame[place] = rng.randrange(256)
    return [*frames[:at], bytes(frame), *frames[at + 1 :]]


def frame_repeated(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames))
    return frames[:at] + [frames[at]] * rng.choice((2, 2, 50)) + frames[at + 1 :]


def frame_removed(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames))
    return frames[:at] + frames[at + 1 :] or frames


def frame_cut(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """The next frame's head is taken for the rest of this one."""
    at = rng.randrange(len(frames))
    return [*frames[:at], frames[at][: rng.randrange(1, len(frames[at]) + 1)], *frames[at + 1 :]]


def frames_swapped(frames: list[bytes], rng: random.Random) -> list[bytes]:
    one, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    changed = list(frames)
    changed[one], changed[other] = changed[other], changed[one]
    return changed


def garbage(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames) + 1)
    return [*frames[:at], rng.randbytes(rng.choice((1, 16, 1000, 100_000))), *frames[at:]]


def other_kind(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames) + 1)
    kind, number = rng.randrange(1, REFUSAL + 1), rng.choice((0, 1 << 16, rng.randrange(2**32)))
    body = rng.choice((b"", b"1234", b"12345678", b"{}", b"[" * 60_000, rng.randbytes(100)))
    frame = encode_frame(kind, number, rng.choice(HEADS), body, rng.randrange(2**16), 1)
    return [*frames[:at], frame, *frames[at:]]


def head_of_another_size(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames))
    frame = bytearray(frames[at])
    sizes = (
        0,
        1,
        16,
        INLINE_BYTES,
        INLINE_BYTES + 1,
        MAX_HEAD_BYTES,
        MAX_HEAD_BYTES + 1,
        2**32 - 1,
    )
    place = rng.choice((0, 8))
    frame[place : place + 4] = rng.choice(sizes).to_bytes(4, "little")
    return [*frames[:at], bytes(frame), *frames[at + 1 :]]


def many_small(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames) + 1)
    frame = encode_frame(rng.choice((WINDOW, CANCEL, SLOTS, DATA)), rng.choice((5, 1 << 16)))
    return [*frames[:at], frame * rng.choice((100, 20_000)), *frames[at:]]


def settings_twice(frames: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(frames) + 1)
    content = rng.choice(({}, {"versions": [VERSION]}, {"version": VERSION, "begun": "../x"}))
    frame = encode_frame(rng.choice((HELLO, WELCOME)), 0, b"", json.dumps(content).encode())
    return [*frames[:at], frame, *frames[at:]]


CHANGES: tuple[Change, ...] = (
    byte_changed,
    byte_changed,
    frame_repeated,
    frame_removed,
    frame_cut,
    frames_swapped,
    garbage,
    other_kind,
    head_of_another_size,
    many_small,
    settings_twice,
)


def mutated(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """Left as it is one time in four."""
    if not frames:
        return frames
    for _ in range(rng.choice((0, 1, 1, 3))):
        frames = rng.choice(CHANGES)(frames, rng)
    return frames


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """Whole, in a few pieces, or its beginning byte by byte."""
    chance = rng.random()
    if chance < 0.5 or not data:
        return [data]
    if chance < 0.8:
        places = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(1, 6)))
        ends = [0, *places, len(data)]
        return [data[a:b] for a, b in pairwise(ends)]
    return [*(data[at : at + 1] for at in range(min(60, len(data)))), data[60:]]
