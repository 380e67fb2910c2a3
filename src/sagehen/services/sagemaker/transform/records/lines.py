"""Objects of text lines: SplitType Line.

A record is a line without its terminator, `\\n` or `\\r\\n`; the last line needs none. Empty lines
are no records: they are neither sent nor counted. The payload of a batch is its records as they
stand in the object, without the terminator of the last, and the limit is held against these bytes.
"""

import numpy as np

from sagehen.services.sagemaker.transform.records.batches import (
    Batch,
    BrokenRecords,
    RecordTooLarge,
)
from sagehen.services.sagemaker.transform.records.record_ends import Offsets, RecordEnds

__all__ = ["LineCutter", "SingleLineCutter"]


class _LineBuffer:
    """Holds what was fed and not yet cut. All offsets are within the object."""

    def __init__(self, limit: int, *, quotes: bool) -> None:
        self._limit = limit
        self._finder = RecordEnds(quotes=quotes)
        self._pieces: list[bytes] = []
        self._pieces_at = 0
        """offset of the first piece"""
        self._ends: list[Offsets] = []
        self._empty: list[Offsets] = []
        self._start = 0
        """of the next record"""
        self._stop = 0
        self._first_record = 0
        """number of the next record"""

    def _add(self, data: bytes) -> None:
        ends, empty = self._finder.find(data)
        self._pieces.append(data)
        self._ends.append(ends)
        if len(empty):
            self._empty.append(empty)
        self._stop += len(data)

    def _finish(self) -> None:
        """Ends the last record."""
        if self._finder.is_inside_quotes:
            raise BrokenRecords(
                self._first_record, self._start, "a quote that begins in or after it is not closed"
            )
        if self._pieces and self._text(self._stop - 1, self._stop) not in (b"", b"\n"):
            self._ends.append(np.array([self._stop]))

    def _text(self, begin: int, end: int) -> bytes:
        parts, at = [], self._pieces_at
        for piece in self._pieces:
            if at < end and at + len(piece) > begin:
                # No copy of a whole piece, and one copy of all others.
                is_whole = begin <= at and at + len(piece) <= end
                parts.append(
                    piece if is_whole else memoryview(piece)[max(begin - at, 0) : end - at]
                )
            at += len(piece)
        return b"".join(parts)

    def _line(self, begin: int, end: int) -> bytes:
        """Returns the text up to a newline at `end`, or up to the object's end."""
        if end < self._stop and end > begin and self._text(end - 1, end) == b"\r":
            end -= 1
        return self._text(begin, end)

    def _forget(self, start: int) -> None:
        """Drops pieces that hold nothing from `start` on."""
        self._start = start
        done = 0
        while done < len(self._pieces) and self._pieces_at + len(self._pieces[done]) <= start:
            self._pieces_at += len(self._pieces[done])
            done += 1
        del self._pieces[:done]

    def _too_large(self, offset: int) -> RecordTooLarge:
        hint = " A quote in it is not closed so far." if self._finder.is_inside_quotes else ""
        return RecordTooLarge(self._first_record, offset, self._limit, hint)


class LineCutter(_LineBuffer):
    """BatchStrategy MultiRecord: as many whole lines as fit."""

    def feed(self, data: bytes) -> list[Batch]:
        self._add(data)
        # With so many bytes a payload is certain: its last record may end with \r\n.
        return self._cut(self._limit + 2)

    def end(self) -> list[Batch]:
        self._finish()
        return self._cut(1)

    def _cut(self, least: int) -> list[Batch]:
        """Makes batches while there are so many bytes."""
        if self._stop - self._start < least:
            return []
        ends, empty = _joined(self._ends), _joined(self._empty)
        batches: list[Batch] = []
        start, first = self._start, 0
        while self._stop - start >= least:
            after = self._count_fitting(ends, start)
            if after == first:
                raise self._too_large(start)
            payload, records = self._payload(start, ends[first:after], empty)
            if records:
                batches.append(Batch(payload, records, self._first_record))
                self._first_record += records
            start, first = min(int(ends[after - 1]) + 1, self._stop), after
        self._ends = [ends[first:]]
        self._empty = [empty[np.searchsorted(empty, start) :]]
        self._forget(start)
        return batches

    def _count_fitting(self, ends: Offsets, start: int) -> int:
        """Returns how many records end within a payload that begins at `start`, and before it."""
        most = start + self._limit
        after = int(np.searchsorted(ends, most, side="right"))
        if after < len(ends) and ends[after] == most + 1 and self._text(most, most + 2) == b"\r\n":
            after += 1
        return after

    def _payload(self, start: int, ends: Offsets, empty: Offsets) -> tuple[bytes, int]:
        """Returns the text of lines without those that are empty, and how many are left."""
        low, high = np.searchsorted(empty, [start, ends[-1] + 1])
        if low == high:
            return self._line(start, int(ends[-1])), len(ends)
        is_kept = np.ones(len(ends), np.bool_)
        is_kept[np.searchsorted(ends, empty[low:high])] = False
        kept = int(np.count_nonzero(is_kept))
        if not kept:
            return b"", 0
        # Neighbours are copied together, with their newlines.
        changes = np.flatnonzero(np.diff(is_kept, prepend=False, append=False))
        firsts, afters = changes[::2], changes[1::2]
        begins = np.where(firsts, ends[firsts - 1] + 1, start)
        *spans, last = zip(begins.tolist(), ends[afters - 1].tolist(), strict=True)
        text = self._text(start, last[0])
        parts = [text[begin - start : end + 1 - start] for begin, end in spans]
        return b"".join([*parts, self._line(*last)]), kept


class SingleLineCutter(_LineBuffer):
    """BatchStrategy SingleRecord: a batch for each line."""

    def feed(self, data: bytes) -> list[Batch]:
        self._add(data)
        if len(self._ends[-1]):
            return self._cut()
        if self._stop - self._start > self._limit + 1:
            raise self._too_large(self._start)
        return []

    def end(self) -> list[Batch]:
        self._finish()
        return self._cut()

    def _cut(self) -> list[Batch]:
        ends = _joined(self._ends)
        if not len(ends):
            return []
        base, last = self._start, int(ends[-1])
        text = self._text(base, min(last + 1, self._stop))
        stops = (ends - base).tolist()
        starts = [0, *(stop + 1 for stop in stops[:-1])]
        lines = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
        if b"\r\n" in text:
            lines = [
                line[:-1] if line.endswith(b"\r") and stop < len(text) else line
                for line, stop in zip(lines, stops, strict=True)
            ]
        self._check_sizes(lines, starts)
        records = enumerate(filter(None, lines), self._first_record)
        batches = [Batch(line, 1, number) for number, line in records]
        self._first_record += len(batches)
        self._ends, self._empty = [], []
        self._forget(base + len(text))
        return batches

    def _check_sizes(self, lines: list[bytes], starts: list[int]) -> None:
        if max(map(len, lines)) <= self._limit:
            return
        at = next(at for at, line in enumerate(lines) if len(line) > self._limit)
        self._first_record += sum(1 for line in lines[:at] if line)
        raise self._too_large(self._start + starts[at])


def _joined(parts: list[Offsets]) -> Offsets:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
