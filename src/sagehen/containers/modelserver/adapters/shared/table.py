"""Rows of numbers from the text forms SageMaker's XGBoost container accepts."""

from array import array
from dataclasses import dataclass

__all__ = ["Table", "parse_csv", "parse_libsvm"]

MAX_SPREAD_CELLS = 1 << 24
"""What the rows of one sparse request may become together; a few bytes can ask for very many."""

_DELIMITERS = (b",", b"\t", b";", b"|", b" ", b":")
_NAN = float("nan")


@dataclass(slots=True)
class Table:
    """`count` rows of `columns` numbers, row after row, in single precision where nothing else is
    said; NaN is missing."""

    count: int
    columns: int
    cells: "array[float]"

    def rows(self) -> "list[array[float]]":
        """The cells, row by row."""
        if self.count == 1:
            return [self.cells]
        width = self.columns
        return [self.cells[at * width : (at + 1) * width] for at in range(self.count)]


def parse_csv(body: bytes, form: str = "f") -> Table:
    """Rows without a header, of numbers in an array's `form`; an empty cell is missing.

    Raises ValueError.
    """
    body = body.strip()
    if b"\n" not in body:
        return _one_row(body, b"," if b"," in body else _delimiter(body), form)
    lines = body.split(b"\n")
    delimiter = _delimiter(lines[0])
    cells: array[float] = array(form)
    columns = lines[0].count(delimiter) + 1
    for number, line in enumerate(lines, 1):
        row = _numbers(line, delimiter, form)
        if len(row) != columns:
            raise ValueError(f"line {number} has {len(row)} cells, the first line has {columns}")
        cells.extend(row)
    return Table(len(lines), columns, cells)


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
    return next((each for each in _DELIMITERS if each in line), b",")


def parse_libsvm(body: bytes, columns: int | None = None) -> Table:
    """`[label] index:value …` lines as rows of `columns` numbers; what is not given is missing.

    Indices count from 0, or from 1 if none in the body is 0. Without `columns` the rows are as
    wide as the highest index needs; an index beyond `columns` makes a table without cells that
    says how wide it would be.

    Raises ValueError.
    """
    rows = [_pairs(line) for line in body.strip().split(b"\n")]
    indices = [index for row in rows for index, _ in row]
    if not indices:  # CSV, for example: it is not to be taken for rows without any feature
        raise ValueError("it has no index:value")
    if min(indices) < 0:
        raise ValueError(f"index {min(indices)} is below 0")
    offset = 1 if min(indices) >= 1 else 0
    width = max(indices) - offset + 1
    if columns is not None and width > columns:
        return Table(len(rows), width, array("f"))
    columns = columns or width
    if len(rows) * columns > MAX_SPREAD_CELLS:
        raise ValueError(f"{len(rows)} rows of {columns} features are too many for one request")
    cells = array("f", [_NAN]) * (len(rows) * columns)
    for at, row in enumerate(rows):
        for index, value in row:
            cells[at * columns + index - offset] = value
    return Table(len(rows), columns, cells)


def _pairs(line: bytes) -> list[tuple[int, float]]:
    """The index and value of each `index:value` in a line."""
    return [
        (int(index), float(value))
        for index, colon, value in (item.partition(b":") for item in line.split())
        if colon
    ]
