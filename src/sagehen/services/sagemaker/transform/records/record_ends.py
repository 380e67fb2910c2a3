"""Where lines end, in an object that comes in pieces."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ends", "Offsets", "RecordEnds"]

Offsets = NDArray[np.int64]
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_SLICE = 1 << 18
"""bytes; comparisons of so many stay in the processor's cache"""


class Ends(NamedTuple):
    """Newlines that end records, as offsets within the object."""

    all: Offsets
    empty: Offsets
    """those of lines that hold nothing, or only the return of a `\\r\\n`"""


class RecordEnds:
    """Finds the newlines that end records.

    With `quotes`, a newline behind an odd number of quotes belongs to a field of CSV: quotes stand
    in pairs there (RFC 4180).
    """

    def __init__(self, *, quotes: bool = False) -> None:
        self._quotes = quotes
        self._base = 0
        self._last_end = -1
        self._last_octet = 0
        self.is_inside_quotes = False

    def find(self, data: bytes) -> Ends:
        """Returns the ends in the object's next piece."""
        newlines = _offsets_of(_NEWLINE, data)
        if self._quotes and (self.is_inside_quotes or b'"' in data):
            newlines = self._outside_quotes(data, newlines)
        empty = self._empty(data, newlines)
        if data:
            self._last_octet = data[-1]
        newlines += self._base
        empty = newlines[empty]
        self._base += len(data)
        if len(newlines):
            self._last_end = int(newlines[-1])
        return Ends(newlines, empty)

    def _outside_quotes(self, data: bytes, newlines: Offsets) -> Offsets:
        quotes = _offsets_of(_QUOTE, data)
        before = np.searchsorted(quotes, newlines) + self.is_inside_quotes
        self.is_inside_quotes = bool((len(quotes) + self.is_inside_quotes) % 2)
        outside: Offsets = newlines[before % 2 == 0]
        return outside

    def _empty(self, data: bytes, newlines: Offsets) -> Offsets:
        """Returns which of the newlines, offsets in the piece, end an empty line."""
        sizes = np.diff(newlines, prepend=self._last_end - self._base) - 1
        candidates = np.flatnonzero(sizes < 2)
        if not len(candidates):
            return candidates
        before = newlines[candidates] - 1
        octets = np.frombuffer(data, np.uint8)
        # Index -1 is the last byte of the piece before this one.
        after_return = np.where(before < 0, self._last_octet, octets[before]) == _RETURN
        kept: Offsets = candidates[(sizes[candidates] == 0) | after_return]
        return kept


def _offsets_of(octet: int, data: bytes) -> Offsets:
    octets = np.frombuffer(data, np.uint8)
    parts = []
    for at in range(0, len(data), _SLICE):
        part = np.flatnonzero(octets[at : at + _SLICE] == octet)
        part += at
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
