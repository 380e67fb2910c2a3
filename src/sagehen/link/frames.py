"""The frames of a link as bytes, without I/O; docs/reference/link.md is their specification.

    payload bytes u32 │ number u32 │ head bytes u32 │ status u16 │ kind u8 │ flags u8 │ head │ body

All integers are little-endian. The payload is head and body together.
"""

import json
from struct import Struct
from typing import Any

from sagehen.base.errors import SagehenError

__all__ = [
    "ANSWER",
    "BUSY",
    "CANCEL",
    "DATA",
    "END",
    "FAILURE",
    "FRAME_HEAD_BYTES",
    "FREE",
    "GRANT",
    "HELLO",
    "INLINE_BYTES",
    "LARGE_ANSWER",
    "LARGE_REQUEST",
    "MAX_HEAD_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_REASON_BYTES",
    "PING",
    "PREFACE",
    "REFUSAL",
    "RELEASE",
    "REQUEST",
    "RESERVE",
    "ROUTE",
    "SESSION",
    "SLOTS",
    "VERSION",
    "WELCOME",
    "WINDOW",
    "WINDOW_BYTES",
    "Frame",
    "FrameReader",
    "LinkError",
    "body_length",
    "encode_frame",
    "encode_length",
    "encode_parts",
    "encode_refusal",
    "encode_settings",
    "encode_window",
    "read_reason",
    "read_settings",
    "window_bytes",
]

PREFACE = b"SAGELINK"
"""The first bytes of a client; no HTTP request begins with them."""
VERSION = 1

HELLO = 1
WELCOME = 2
REQUEST = 3
LARGE_REQUEST = 4
ANSWER = 5
LARGE_ANSWER = 6
DATA = 7
WINDOW = 8
CANCEL = 9
SLOTS = 10
REFUSAL = 11

# Between gateways of a cluster only.
ROUTE = 12
RESERVE = 13
GRANT = 14
RELEASE = 15
BUSY = 16
FREE = 17
FAILURE = 18
PING = 19
SESSION = 20
_LAST_KIND = SESSION

END = 1
"""flag of the last DATA frame"""

FRAME_HEAD_BYTES = 16
MAX_HEAD_BYTES = 256 * 1024
"""of a request's or an answer's header lines; gateways accept less from their clients"""
INLINE_BYTES = 64 * 1024
"""of a body inside its request or answer; a larger one follows in DATA frames of this size"""
MAX_PAYLOAD_BYTES = MAX_HEAD_BYTES + INLINE_BYTES
MAX_REASON_BYTES = 1000
"""of a REFUSAL, which is logged"""
WINDOW_BYTES = 512 * 1024
"""of a large body that may be sent before the receiver allows more"""

_FRAME_HEAD = Struct("<IIIHBB")
_LENGTH = Struct("<Q")
_WINDOW = Struct("<I")

Frame = tuple[int, int, int, int, bytes, bytes]
"""kind, flags, number, status, head and body; a plain tuple, as it costs 0.3 µs less"""


class LinkError(SagehenError):
    """The peer does not speak this protocol, or not this version of it."""


def encode_frame(
    kind: int,
    number: int,
    head: bytes = b"",
    body: bytes | memoryview = b"",
    status: int = 0,
    flags: int = 0,
) -> bytes:
    return b"".join(encode_parts(kind, number, head, body, status, flags))


def encode_parts(
    kind: int,
    number: int,
    head: bytes = b"",
    body: bytes | memoryview = b"",
    status: int = 0,
    flags: int = 0,
) -> tuple[bytes, bytes, bytes | memoryview]:
    """Returns a frame in parts, so that a large body need not be copied."""
    head_bytes = len(head)
    frame_head = _FRAME_HEAD.pack(head_bytes + len(body), number, head_bytes, status, kind, flags)
    return frame_head, head, body


class FrameReader:
    """Cuts a stream into frames.

    Of a DATA frame whose end has not come yet, the part that has is returned as a frame of its own:
    a large body need not be held, nor copied, to be whole again.
    """

    __slots__ = ("_data_flags", "_data_left", "_data_number", "_needed", "_rest", "fault")

    def __init__(self) -> None:
        self._rest = bytearray()
        """the beginning of a frame"""
        self._needed = 0
        """bytes of `_rest` without which no frame is complete"""
        self._data_left = 0
        """bytes of the DATA frame that is being received"""
        self._data_number = self._data_flags = 0
        """of that frame"""
        self.fault: str | None = None
        """why the stream ends behind the frames returned so far"""

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that are complete now; none after a fault."""
        if self.fault is not None:
            return []
        rest = self._rest
        frames: list[Frame] = []
        if not rest:
            at = self._continue_data(data, frames) if self._data_left else 0
            at = self._cut(data, at, frames)
            if at < len(data):
                rest += memoryview(data)[at:]
            return frames
        rest += data
        if len(rest) < self._needed:
            return []
        with memoryview(rest) as view:
            at = self._cut(view, 0, frames)
        del rest[:at]
        return frames

    def _continue_data(self, data: bytes, frames: list[Frame]) -> int:
        """Adds the next part of a DATA frame to `frames`; returns where it ends."""
        part = data[: self._data_left]
        self._add_data(part, self._data_left - len(part), frames)
        return len(part)

    def _add_data(self, part: bytes, left: int, frames: list[Frame]) -> None:
        self._data_left = left
        flags = self._data_flags & ~END if left else self._data_flags
        frames.append((DATA, flags, self._data_number, 0, b"", part))

    def _cut(self, data: bytes | memoryview, at: int, frames: list[Frame]) -> int:
        """Adds the complete frames from `at` on to `frames`; returns where they end."""
        unpack = _FRAME_HEAD.unpack_from
        end = len(data)
        self._needed = FRAME_HEAD_BYTES
        while end - at >= FRAME_HEAD_BYTES:
            payload_bytes, number, head_bytes, status, kind, flags = unpack(data, at)
            if (
                head_bytes > MAX_HEAD_BYTES
                or not head_bytes <= payload_bytes <= head_bytes + INLINE_BYTES
                or not 0 < kind <= _LAST_KIND
            ):
                self.fault = _fault(payload_bytes, head_bytes, kind)
                break
            head_at = at + FRAME_HEAD_BYTES
            stop = head_at + payload_bytes
            if stop > end:
                if kind == DATA and not head_bytes and end > head_at:
                    self._data_number, self._data_flags = number, flags
                    self._add_data(bytes(data[head_at:end]), stop - end, frames)
                    return end
                self._needed = stop - at
                break
            body_at = head_at + head_bytes
            # Copies only what is cut from a view.
            head, body = bytes(data[head_at:body_at]), bytes(data[body_at:stop])
            frames.append((kind, flags, number, status, head, body))
            at = stop
        return at


def _fault(payload_bytes: int, head_bytes: int, kind: int) -> str:
    if not 0 < kind <= _LAST_KIND:
        return f"There is no frame of kind {kind} in version {VERSION}."
    if head_bytes > payload_bytes:
        return f"A frame of {payload_bytes} bytes says that its head has {head_bytes}."
    if head_bytes > MAX_HEAD_BYTES:
        return f"The head of a frame has {head_bytes} bytes; at most {MAX_HEAD_BYTES} are allowed."
    body_bytes = payload_bytes - head_bytes
    return f"The body of a frame has {body_bytes} bytes; at most {INLINE_BYTES} are allowed."


def encode_length(body_bytes: int) -> bytes:
    """Returns the body of a LARGE_REQUEST or LARGE_ANSWER, whose DATA frames have `body_bytes`."""
    return _LENGTH.pack(body_bytes)


def body_length(body: bytes) -> int | None:
    """Reads what `encode_length` wrote; None for an empty body: the length is not known.

    Raises:
        LinkError
    """
    if not body:
        return None
    if len(body) != _LENGTH.size:
        raise LinkError(f"A length has {_LENGTH.size} bytes, not {len(body)}.")
    return int(_LENGTH.unpack(body)[0])


def encode_window(number: int, more_bytes: int) -> bytes:
    return encode_frame(WINDOW, number, body=_WINDOW.pack(more_bytes))


def window_bytes(body: bytes) -> int:
    """Raises LinkError."""
    if len(body) != _WINDOW.size:
        raise LinkError(f"A window has {_WINDOW.size} bytes, not {len(body)}.")
    return int(_WINDOW.unpack(body)[0])


def encode_refusal(reason: str) -> bytes:
    # The peer's own bytes may be quoted in it.
    return encode_frame(REFUSAL, 0, body=reason.encode(errors="replace")[:MAX_REASON_BYTES])


def read_reason(body: bytes) -> str:
    """Returns the reason of a REFUSAL, in one line of the log."""
    return repr(body[:MAX_REASON_BYTES].decode(errors="replace"))


def encode_settings(kind: int, settings: dict[str, Any]) -> bytes:
    """Returns a HELLO or WELCOME."""
    return encode_frame(kind, 0, body=json.dumps(settings).encode())


def read_settings(body: bytes) -> dict[str, Any]:
    """Raises LinkError."""
    try:
        settings = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise LinkError(f"The handshake is not JSON: {error}.") from error
    if not isinstance(settings, dict):
        raise LinkError("The handshake is no JSON object.")
    return settings
