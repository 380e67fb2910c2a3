"""Reads and writes SageMaker's recordio-wrapped protobuf, without a protobuf library.

A record is `magic, length, message, padding to 4`. The message's field 1 maps feature names to
values that hold a tensor: values (field 1), keys (2, if sparse) and shape (3).
"""

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sagehen.containers.modelserver.adapters.shared.table import MAX_SPREAD_CELLS, Table

__all__ = ["parse_recordio", "write_recordio"]

_MAGIC = 0xCED7230A
_HEAD = struct.Struct("<II")
_TENSORS = {2: "<f", 3: "<d", 7: "<i"}
"""Number format by the field of a value that holds the tensor."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Tensor(NamedTuple):
    values: list[float]
    keys: list[int]
    columns: int


def parse_recordio(body: bytes) -> Table:
    """Raises ValueError."""
    tensors = [_features(record) for record in _records(body)]
    if not tensors:
        raise ValueError("No records found in RecordIO-Protobuf data")
    columns = max(tensor.columns for tensor in tensors)
    if len(tensors) * columns > MAX_SPREAD_CELLS:
        raise ValueError(f"{len(tensors)} rows of {columns} features are too many for one request")
    cells = array("f", [float("nan")]) * (len(tensors) * columns)
    for row, tensor in enumerate(tensors):
        start = row * columns
        for key, value in zip(tensor.keys or range(columns), tensor.values, strict=False):
            cells[start + key] = value
        if not tensor.keys and len(tensor.values) != columns:
            raise ValueError(f"record {row} has {len(tensor.values)} values instead of {columns}")
    return Table(len(tensors), columns, cells)


def _records(body: bytes) -> Iterator[memoryview]:
    at = 0
    while at + _HEAD.size <= len(body):
        magic, length = _HEAD.unpack_from(body, at)
        if magic != _MAGIC:
            raise ValueError(f"Invalid RecordIO magic at offset {at}")
        start = at + _HEAD.size
        at = start + (length + 3) // 4 * 4
        if at > len(body):
            raise ValueError(f"Truncated record at offset {start}")
        yield memoryview(body)[start : start + length]


def _features(record: memoryview) -> _Tensor:
    for field, entry in _fields(record):
        if field != 1 or not isinstance(entry, memoryview):
            continue
        parts = dict(_fields(entry))
        name, value = parts.get(1), parts.get(2)
        # `bytes` of an integer would be that many zeros.
        named = isinstance(name, memoryview) and bytes(name) == b"values"
        if named and isinstance(value, memoryview):
            return _tensor(value)
    raise ValueError('a record has no feature "values"')


def _tensor(value: memoryview) -> _Tensor:
    for field, content in _fields(value):
        if field in _TENSORS and isinstance(content, memoryview):
            return _read_tensor(content, _TENSORS[field])
    raise ValueError("a record's value is not a tensor of numbers")


def _read_tensor(content: memoryview, form: str) -> _Tensor:
    values: list[float] = []
    keys: list[int] = []
    shape: list[int] = []
    for field, part in _fields(content):
        if field == 1:
            values += _numbers(part, form)
        elif field in (2, 3):
            (keys if field == 2 else shape).extend(_varints(part))
    columns = shape[-1] if shape else max(keys) + 1 if keys else len(values)
    if keys and (len(keys) != len(values) or max(keys) >= columns):
        raise ValueError("a sparse record's keys do not fit its values or shape")
    return _Tensor(values, keys, columns)


def _numbers(part: "memoryview | int", form: str) -> list[float]:
    if form == "<i":
        return [float(_signed(number)) for number in _varints(part)]
    if isinstance(part, int):
        raise ValueError("a record's numbers are malformed")
    if len(part) % struct.calcsize(form):
        raise ValueError("a record's numbers are cut off")
    return [number for (number,) in struct.iter_unpack(form, part)]


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varints(part: "memoryview | int") -> list[int]:
    if isinstance(part, int):
        return [part]
    numbers, at = [], 0
    while at < len(part):
        number, at = _varint(part, at)
        numbers.append(number)
    return numbers


def _fields(message: memoryview) -> Iterator[tuple[int, "memoryview | int"]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a record has a field of the unknown kind {kind}")
        if at + length > len(message):
            raise ValueError("a record is cut off")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("a record is cut off inside a number")


def write_recordio(rows: Sequence[Mapping[str, Sequence[float]]]) -> bytes:
    """Writes numbers as float32 labels."""
    out = bytearray()
    for row in rows:
        message = b"".join(_label(name, numbers) for name, numbers in row.items())
        out += _HEAD.pack(_MAGIC, len(message)) + message + bytes(-len(message) % 4)
    return bytes(out)


def _label(name: str, numbers: Sequence[float]) -> bytes:
    """Encodes an entry of field 2, a map like field 1."""
    tensor = _field(1, struct.pack(f"<{len(numbers)}f", *numbers))
    return _field(2, _field(1, name.encode()) + _field(2, _field(2, tensor)))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _length(len(content)) + content


def _length(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
