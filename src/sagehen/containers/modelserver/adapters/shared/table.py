"""Parses the text formats of SageMaker's XGBoost container."""

import re
import sys
from array import array
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Table", "has_infinity", "parse_csv", "parse_libsvm", "prepare_for_large_csv"]

MAX_SPREAD_CELLS = 1 << 24
"""Limit for sparse requests, where few bytes can mean many cells."""

LINES_AT_ONCE = 256
"""of CSV; their numbers stay in the processor's cache"""

MANY_BYTES = 16 * 1024
"""of CSV, for which NumPy's operations are quicker"""
IMPORT_BYTES = 2 * 2**20
"""of CSV, for which even its import is worth it"""
MANY_CELLS = 4096
PLAIN_TRIES = 4
"""chunks of CSV without plain numbers, until no more are expected"""

_read_numbers = msgspec.json.Decoder(list[float]).decode
_NEGATIVE_ZERO = re.compile(rb"-0[^.eE]")
_DELIMITERS = (b",", b"\t", b";", b"|", b" ", b":")
_NAN = float("nan")
_INFINITY = float("inf")


@dataclass(slots=True)
class Table:
    """Holds `count` rows of `columns` numbers, float32 by default; NaN is missing."""

    count: int
    columns: int
    cells: "array[float]"

    def rows(self) -> "list[array[float]]":
        if self.count == 1:
            return [self.cells]
        width = self.columns
        return [self.cells[at * width : (at + 1) * width] for at in range(self.count)]


def parse_csv(body: bytes, form: str = "f") -> Table:
    """Reads numbers of an array's `form`; an empty cell is missing. Raises ValueError."""
    body = body.strip()
    if b"\n" not in body:
        return _one_row(body, b"," if b"," in body else _delimiter(body), form)
    if len(body) < MANY_BYTES:
        return _few_rows(body.split(b"\n"), form)
    first = body[: body.index(b"\n")]
    delimiter = _delimiter(first)
    rows = _Rows(delimiter, first.count(delimiter) + 1, form)
    if delimiter == b"," and (plain_csv := _plain_csv(len(body))) is not None:
        _add_chunks(rows, body, plain_csv)
    else:
        rows.add(body.split(b"\n"))
    return Table(rows.count, rows.columns, rows.cells)


def _few_rows(lines: list[bytes], form: str) -> Table:
    delimiter = _delimiter(lines[0])
    columns = lines[0].count(delimiter) + 1
    rows = _Rows(delimiter, columns, form)
    if delimiter != b"," or len(lines) > LINES_AT_ONCE:
        rows.add(lines)
    elif _add_plain(lines, columns, rows.cells):
        rows.count = len(lines)
    else:
        rows.add_each(lines)
    return Table(rows.count, rows.columns, rows.cells)


class _Rows:
    """Reads lines, and has their cells."""

    __slots__ = ("_delimiter", "cells", "columns", "count", "form")

    def __init__(self, delimiter: bytes, columns: int, form: str) -> None:
        self._delimiter = delimiter
        self.columns = columns
        self.form = form
        self.cells: array[float] = array(form)
        self.count = 0

    def add(self, lines: list[bytes]) -> None:
        """Raises ValueError."""
        for start in range(0, len(lines), LINES_AT_ONCE):
            part = lines[start : start + LINES_AT_ONCE]
            if self._delimiter == b"," and _add_plain(part, self.columns, self.cells):
                self.count += len(part)
            else:
                self.add_each(part)

    def add_each(self, lines: list[bytes]) -> None:
        """Raises ValueError."""
        for line in lines:
            row = _numbers(line, self._delimiter, self.form)
            self.count += 1
            if len(row) != self.columns:
                raise ValueError(
                    f"line {self.count} has {len(row)} cells, the first line has {self.columns}"
                )
            self.cells.extend(row)


def _plain_csv(size: int) -> "ModuleType | None":
    """Returns the reader of plain numbers, if a body of that size is worth it.

    It needs NumPy, whose import takes a tenth of a second and 20 MB.
    """
    if size < MANY_BYTES or (size < IMPORT_BYTES and "numpy" not in sys.modules):
        return None
    return _import_plain_csv()


def _import_plain_csv() -> "ModuleType | None":
    try:
        from sagehen.containers.modelserver.adapters.shared import plain_csv
    except ImportError:  # NumPy is not installed
        return None
    return plain_csv


def prepare_for_large_csv() -> None:
    """Imports what large bodies need before the first of them comes."""
    _import_plain_csv()


def has_infinity(cells: "array[float]") -> bool:
    if len(cells) >= MANY_CELLS and "numpy" in sys.modules:
        plain_csv = _import_plain_csv()
        if plain_csv is not None:
            return bool(plain_csv.has_infinity(cells))
    # A sum is quick; without infinities it is finite, but for missing cells or very large ones.
    return not isfinite(sum(cells)) and (_INFINITY in cells or -_INFINITY in cells)


def _add_chunks(rows: _Rows, body: bytes, plain_csv: "ModuleType") -> None:
    """Reads the body in chunks of whole lines, as plain numbers where it can. Raises ValueError."""
    tries = PLAIN_TRIES
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + plain_csv.CHUNK_BYTES) + 1
        lines = body[start : end - 1] if end else body[start:]
        start = end or len(body)
        cells = None
        if tries:
            text = (lines + b"\n").replace(b"\r\n", b"\n")
            cells = plain_csv.read_plain_rows(text, rows.columns, rows.form)
        if cells is None:
            tries = max(0, tries - 1)
            rows.add(lines.split(b"\n"))
        else:
            rows.cells.frombytes(memoryview(cells).cast("B"))
            rows.count += len(cells) // rows.columns


def _add_plain(lines: list[bytes], columns: int, cells: "array[float]") -> bool:
    """Reads the lines as JSON, four times as quickly as one by one. Returns False, and adds
    nothing, if a cell is no number of JSON, or a row has not as many cells."""
    if any(line.count(b",") != columns - 1 for line in lines):
        return False
    text = b"[%b]" % b",".join(lines)
    if b"-0" in text and _NEGATIVE_ZERO.search(text):
        return False  # JSON would read -0 as an integer, which has no sign
    try:
        cells.fromlist(_read_numbers(text))
    except msgspec.MsgspecError:
        return False
    return True


def _one_row(line: bytes, delimiter: bytes, form: str) -> Table:
    row = _numbers(line, delimiter, form)
    return Table(1, len(row), row)


def _numbers(line: bytes, delimiter: bytes, form: str) -> "array[float]":
    parts = line.split(delimiter)
    try:
        return array(form, map(float, parts))
    except ValueError:
        return array(form, (float(part) if part.strip() else _NAN for part in parts))


def _delimiter(line: bytes) -> bytes:
    line = line.strip()
    return next((delimiter for delimiter in _DELIMITERS if delimiter in line), b",")


def parse_libsvm(body: bytes, columns: int | None = None) -> Table:
    """Reads `[label] index:value …` lines; other cells are missing.

    An index is a column's, from 0 on, as where XGBoost reads training data: a model of data with
    indices from 1 on has a column 0 that is always missing. Without `columns`, the highest index
    sets the width. An index beyond `columns` gives a table without cells, of the width needed.

    Raises ValueError.
    """
    rows = [_pairs(line) for line in body.strip().split(b"\n")]
    indices = [index for row in rows for index, _ in row]
    if not indices:  # such as CSV
        raise ValueError("it has no index:value")
    if min(indices) < 0:
        raise ValueError(f"index {min(indices)} is below 0")
    width = max(indices) + 1
    if columns is not None and width > columns:
        return Table(len(rows), width, array("f"))
    columns = columns or width
    if len(rows) * columns > MAX_SPREAD_CELLS:
        raise ValueError(f"{len(rows)} rows of {columns} features are too many for one request")
    cells = array("f", [_NAN]) * (len(rows) * columns)
    for at, row in enumerate(rows):
        for index, value in row:
            cells[at * columns + index] = value
    return Table(len(rows), columns, cells)


def _pairs(line: bytes) -> list[tuple[int, float]]:
    return [
        (int(index), float(value))
        for index, colon, value in (item.partition(b":") for item in line.split())
        if colon
    ]
