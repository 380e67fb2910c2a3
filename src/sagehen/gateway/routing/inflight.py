"""The requests in flight on each instance, counted by all gateways in a memory-mapped file.

        column 0   column 1   …    a column for each instance, as the route table says
row 0       3          1           gateway 0 alone writes here
row 1       2          0           gateway 1
            5          1           the sums, which all gateways see

Beside each count is the time since when a request has waited for that column's variant.
"""

import mmap
import os
from contextlib import suppress
from pathlib import Path

from sagehen.frame.routes import INFLIGHT_COLUMNS

__all__ = [
    "InflightSums",
    "InflightTable",
    "clear_row",
    "create_inflight_table",
    "open_inflight_table",
]

CELL_BYTES = 8
ROW_CELLS = 2 * INFLIGHT_COLUMNS
"""first the counts, then the waiting times"""
ROW_BYTES = ROW_CELLS * CELL_BYTES


class InflightTable:
    """The shared table.

    No lock is needed: each cell has one writer, and is read and written atomically.
    """

    __slots__ = ("_cells", "_other_gateways", "_own_row", "_rows", "is_shared")

    def __init__(self, cells: memoryview, row: int) -> None:
        self._cells = cells
        self._own_row = row * ROW_CELLS
        self._rows = tuple(range(0, len(cells), ROW_CELLS))
        """first cells of all rows"""
        self._other_gateways = tuple(
            start + INFLIGHT_COLUMNS for start in self._rows if start != self._own_row
        )
        """first waiting times of the other rows"""
        self.is_shared = bool(self._other_gateways)
        """there are other gateways"""

    def increment(self, column: int) -> None:
        self._cells[self._own_row + column] += 1

    def decrement(self, column: int, count: int = 1) -> None:
        self._cells[self._own_row + column] -= count

    def outstanding(self, column: int) -> int:
        cells = self._cells
        total = 0
        for row in self._rows:
            total += cells[row + column]
        return total

    def publish_oldest_waiter(self, column: int, microseconds: int | None) -> None:
        """`microseconds`: since when this gateway's first waiter waits, above 0; None: there is no
        waiter."""
        self._cells[self._own_row + INFLIGHT_COLUMNS + column] = microseconds or 0

    def oldest_waiter_elsewhere(self, column: int) -> int | None:
        """Returns since when another gateway's first waiter waits, in microseconds."""
        oldest: int | None = None
        for row in self._other_gateways:
            since = self._cells[row + column]
            if since and (oldest is None or since < oldest):
                oldest = since
        return oldest


class InflightSums:
    """The sums of the table, for control, which counts nothing in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cells: memoryview | None = None

    def outstanding(self, column: int) -> int:
        """Returns 0 without a table: then there are no gateways."""
        if self._cells is None:
            try:
                self._cells = _map(self._path)
            except OSError:
                return 0
        return sum(self._cells[column::ROW_CELLS])


def create_inflight_table(path: Path, rows: int) -> None:
    """Replaces an earlier server's table."""
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(bytes(rows * ROW_BYTES))
    os.replace(draft, path)


def open_inflight_table(path: Path, row: int) -> InflightTable:
    """Clears the row first: an earlier gateway may have left counts in it."""
    cells = _map(path)
    _clear(cells, row)
    return InflightTable(cells, row)


def clear_row(path: Path, row: int) -> None:
    """Clears the row of a gateway that has ended."""
    # Without the file there is nothing to clear; gateways clear their row when they start, too.
    with suppress(OSError):
        _clear(_map(path), row)


def _map(path: Path) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


def _clear(cells: memoryview, row: int) -> None:
    start = row * ROW_CELLS
    cells[start : start + ROW_CELLS] = memoryview(bytes(ROW_BYTES)).cast("q")
