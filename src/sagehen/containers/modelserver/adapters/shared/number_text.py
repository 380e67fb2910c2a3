"""Writes lists of floats as Python does, many at once."""

import re
from collections.abc import Sequence

import msgspec

__all__ = ["compact_repr"]

_encode = msgspec.json.encode
_UNLIKE_REPR = re.compile(rb"(?<![0-9])0\.0000[0-9]*|[0-9.]+e[0-9-]+")
"""Python writes numbers below 0.0001 with an exponent, and that with a sign and two digits."""


def compact_repr(values: "Sequence[float] | Sequence[Sequence[float]]") -> bytes:
    """Returns `repr` of a list of floats, or of lists of them, without spaces.

    msgspec writes the same shortest digits, ten times as quickly.
    """
    text = _encode(values)
    if b"n" in text:  # null, for a NaN or an infinity
        return repr(values).replace(" ", "").encode()
    if b"e" in text or b"0.0000" in text:
        return _UNLIKE_REPR.sub(_as_python, text)
    return text


def _as_python(number: "re.Match[bytes]") -> bytes:
    return repr(float(number[0])).encode()
