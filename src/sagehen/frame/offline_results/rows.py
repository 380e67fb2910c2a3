"""Rows of CSV and of JSON: their keys, and the answers that they hold.

Keys are bytes: the text of a CSV column without its quotes, a JSON string without its quotes and
escapes, a JSON number as it is written. So 7, "7" and a column 7 are one key.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sagehen.base.errors import Invalid
from sagehen.frame.offline_results.definition import (
    LINE,
    REST,
    OfflineResults,
    read_selector,
)

__all__ = [
    "MAX_ROW_BYTES",
    "csv_key",
    "csv_rows",
    "json_key",
    "json_values",
    "lines",
    "row_reader",
]

MAX_ROW_BYTES = 8 * 2**20
"""of results; more than an answer may have"""
MAX_KEY_BYTES = 1024

RowReader = Callable[[bytes], tuple[bytes, bytes]]
"""returns a row's key and answer; raises Invalid"""

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec raises UnicodeDecodeError for strings and names that are not UTF-8"""
_as_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_as_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_as_text = msgspec.json.Decoder(str).decode
_as_json = msgspec.json.encode
_QUOTE = b'"'
_NUMBER_STARTS = b"-0123456789"


def row_reader(results: OfflineResults) -> RowReader:
    """Returns the reader of the results' own rows."""
    key = read_selector(results.key)
    if isinstance(key, int):
        return _csv_reader(key, results.answer)
    return _json_reader(key, results.answer)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines without their ends. Raises Invalid for one of more than MAX_ROW_BYTES."""
    for line in _newline_ended(chunks):
        yield line[:-1] if line.endswith(b"\r") else line


def _newline_ended(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines without their newlines; those that end with `\\r\\n` keep the return."""
    rest = b""
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        for other in others:
            yield rest
            rest = other
        if len(rest) > MAX_ROW_BYTES:
            raise Invalid(f"it has more than {MAX_ROW_BYTES} bytes.")
    if rest:
        yield rest


def csv_rows(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields rows, whose quoted fields may hold line ends. Raises Invalid."""
    open_row: list[bytes] = []
    size = 0
    for line in _newline_ended(chunks):
        # Quotes inside a quoted field are doubled: an odd number opens or closes one.
        is_odd = _QUOTE in line and line.count(_QUOTE) % 2 == 1
        if not open_row and not is_odd:
            yield line[:-1] if line.endswith(b"\r") else line
            continue
        open_row.append(line)
        size += len(line)
        if is_odd and len(open_row) > 1:
            yield b"\n".join(open_row).removesuffix(b"\r")
            open_row, size = [], 0
        elif size > MAX_ROW_BYTES:
            raise Invalid(f"it has more than {MAX_ROW_BYTES} bytes: is a quote not closed?")
    if open_row:
        raise Invalid("a quote is not closed.")


def csv_key(row: bytes, column: int) -> bytes:
    """Raises Invalid."""
    return _field(_fields(row), column)


def json_key(row: bytes | msgspec.Raw, path: Sequence[str]) -> bytes:
    """Raises Invalid."""
    return _scalar(_value(row, path), path)


def json_values(body: bytes) -> list[msgspec.Raw]:
    """Returns the elements of a JSON array. Raises Invalid."""
    try:
        return _as_array(body)
    except _NOT_JSON as error:
        raise Invalid(f"it is not a JSON array ({error}).") from error


def _csv_reader(column: int, answer: str) -> RowReader:
    if answer == LINE:
        return lambda row: (_field(_fields(row), column), row)
    if answer == REST:
        return lambda row: _without_column(row, column)
    chosen = int(answer)

    def read(row: bytes) -> tuple[bytes, bytes]:
        fields = _fields(row)
        key = _field(fields, column)
        return key, _csv_row([_column(fields, chosen)])

    return read


def _without_column(row: bytes, column: int) -> tuple[bytes, bytes]:
    fields = _fields(row)
    key = _field(fields, column)
    del fields[column]
    return key, _csv_row(fields) if _QUOTE in row else b",".join(fields)


def _fields(row: bytes) -> list[bytes]:
    if _QUOTE not in row:
        return row.split(b",")
    csv.field_size_limit(MAX_ROW_BYTES)
    try:
        # latin-1 has one character for each byte.
        (fields,) = csv.reader([row.decode("latin-1")], strict=True)
    except (csv.Error, ValueError) as error:
        raise Invalid(f"it is not CSV ({error}).") from error
    return [field.encode("latin-1") for field in fields]


def _csv_row(fields: Sequence[bytes]) -> bytes:
    return b",".join(map(_quoted, fields))


def _quoted(field: bytes) -> bytes:
    if _QUOTE in field or b"," in field or b"\n" in field or b"\r" in field:
        return _QUOTE + field.replace(_QUOTE, b'""') + _QUOTE
    return field


def _column(fields: Sequence[bytes], column: int) -> bytes:
    try:
        return fields[column]
    except IndexError:
        raise Invalid(f"it has no column {column}, only {len(fields)} columns.") from None


def _field(fields: Sequence[bytes], column: int) -> bytes:
    return _checked_key(_column(fields, column))


def _json_reader(path: Sequence[str], answer: str) -> RowReader:
    if answer == LINE:
        return lambda row: (json_key(row, path), row)
    if answer == REST:
        return lambda row: _without_field(row, path[0])
    chosen = read_selector(answer)
    assert not isinstance(chosen, int)

    def read(row: bytes) -> tuple[bytes, bytes]:
        return json_key(row, path), bytes(_value(row, chosen))

    return read


def _without_field(row: bytes, name: str) -> tuple[bytes, bytes]:
    fields = _object(row, ())
    raw = fields.pop(name, None)
    if raw is None:
        raise Invalid(f"it has no field {name}.")
    return _scalar(raw, (name,)), _as_json(fields)


def _value(row: bytes | msgspec.Raw, path: Sequence[str]) -> bytes | msgspec.Raw:
    value = row
    for number, name in enumerate(path):
        found = _object(value, path[:number]).get(name)
        if found is None:
            raise Invalid(f"it has no field {'.'.join(path[: number + 1])}.")
        value = found
    return value


def _object(value: bytes | msgspec.Raw, path: Sequence[str]) -> dict[str, msgspec.Raw]:
    try:
        return _as_object(value)
    except _NOT_JSON as error:
        what = f"its field {'.'.join(path)}" if path else "it"
        raise Invalid(f"{what} is not a JSON object ({error}).") from error


def _scalar(raw: bytes | msgspec.Raw, path: Sequence[str]) -> bytes:
    value = bytes(raw)
    if value.startswith(_QUOTE):
        try:
            return _checked_key(_as_text(value).encode())
        except _NOT_JSON as error:
            raise Invalid(f"its field {'.'.join(path)} is not a string ({error}).") from error
    if value[:1] in _NUMBER_STARTS and value:
        return _checked_key(value)
    raise Invalid(f"its field {'.'.join(path)} is neither a string nor a number.")


def _checked_key(key: bytes) -> bytes:
    if not key:
        # All rows whose key is missing would get the answer of one of them.
        raise Invalid("its key is empty.")
    if len(key) > MAX_KEY_BYTES:
        raise Invalid(f"its key has {len(key)} bytes; at most {MAX_KEY_BYTES} are taken.")
    return key
