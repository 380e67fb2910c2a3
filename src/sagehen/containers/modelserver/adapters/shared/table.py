"""Parses the text formats of SageMaker's XGBoost container."""

import re
from array import array
from dataclasses import dataclass

import msgspec

__all__ = ["Table", "parse_csv", "parse_libsvm"]

MAX_SPREAD_CELLS = 1 << 24
"""Limit for sparse requests, where few bytes can mean many cells."""

LINES_AT_ONCE = 256
"""of CSV; their numbers stay in the processor's cache"""

_read_numbers = msgspec.json.Decoder(list[float]).decode
_NEGATIVE_ZERO = re.compile(rb"-0[^.eE]")
_DELIMITERS = (b",", b"\t", b";", b"|", b" ", b":")
_NAN = float("nan")


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
    lines = body.split(b"\n")
    delimiter = _delimiter(lines[0])
    cells: array[float] = array(form)
    columns = lines[0].count(delimiter) + 1
    for start in range(0, len(lines), LINES_AT_ONCE):
        part = lines[start : start + LINES_AT_ONCE]
        if delimiter == b"," and _add_plain(part, columns, cells):
            continue
        for number, line in enumerate(part, start + 1):
            row = _numbers(line, delimiter, form)
            if len(row) != columns:
                raise ValueError(
                    f"line {number} has {len(row)} cells, the first line has {columns}"
                )
            cells.extend(row)
    return Table(len(lines), columns, cells)


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
