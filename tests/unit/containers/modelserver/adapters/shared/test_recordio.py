import math
import struct

import pytest

from sagehen.containers.modelserver.adapters.shared.recordio import (
    parse_recordio,
    write_recordio,
)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def record(tensor: bytes, kind: int = 2) -> bytes:
    entry = field(1, b"values") + field(2, field(kind, tensor))
    message = field(1, entry) + field(2, field(1, b"values") + field(2, b""))
    return struct.pack("<II", 0xCED7230A, len(message)) + message + b"\0" * (-len(message) % 4)


def named(number: int) -> bytes:
    """A record whose feature has a number where its name should be."""
    message = field(1, b"\x08" + varint(number) + field(2, b""))
    return struct.pack("<II", 0xCED7230A, len(message)) + message + b"\0" * (-len(message) % 4)


def floats(*numbers: float) -> bytes:
    return field(1, struct.pack(f"<{len(numbers)}f", *numbers))


def test_dense_rows():
    table = parse_recordio(record(floats(1, 2, 300)) + record(floats(4, 5, 6)))
    assert (table.count, table.columns) == (2, 3)
    assert list(table.cells) == [1, 2, 300, 4, 5, 6]


def test_numbers_of_other_kinds():
    assert list(parse_recordio(record(field(1, struct.pack("<2d", 1.5, 2)), 3)).cells) == [1.5, 2]
    minus_one = b"\xff" * 9 + b"\x01"
    assert list(parse_recordio(record(field(1, minus_one + varint(300)), 7)).cells) == [-1, 300]
    unpacked = b"".join(b"\x0d" + struct.pack("<f", number) for number in (1, 2))
    assert list(parse_recordio(record(unpacked)).cells) == [1, 2]


def test_sparse_rows():
    sparse = floats(5, 7) + field(2, varint(0) + varint(2)) + field(3, varint(4))
    cells = parse_recordio(record(sparse)).cells
    assert [None if math.isnan(cell) else cell for cell in cells] == [5, None, 7, None]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "No records"),
        (b"12345678", "magic"),
        (record(floats(1))[:-4], "Truncated"),
        (record(floats(1, 2)) + record(floats(1)), "instead of 2"),
        (record(b"\x0a\x05ab"), "cut off"),
        (record(field(1, b"abc")), "cut off"),
        (record(floats(1) + field(2, varint(9)) + field(3, varint(2))), "do not fit"),
        (record(b"", 9), "not a tensor"),
        (struct.pack("<II", 0xCED7230A, 0), "no feature"),
        (record(field(1, b"") + field(3, varint(1 << 40))), "too many"),
        (named(1 << 40), "no feature"),
        (named((1 << 64) - 1), "no feature"),
    ],
)
def test_broken_data(body, problem):
    with pytest.raises(ValueError, match=problem):
        parse_recordio(body)


def test_labels_are_written_as_features_are_read():
    written = write_recordio([{"values": [0.25, 0.75]}, {"values": [1.0, 300.0]}])
    # A record has labels in its field 2 as it has features in field 1.
    table = parse_recordio(written.replace(b"\x12\x16\n\x06values", b"\n\x16\n\x06values"))
    assert (table.count, list(table.cells)) == (2, [0.25, 0.75, 1, 300])


def test_long_labels_have_long_lengths():
    (written,) = [write_recordio([{"values": [0.5] * 100}])]
    assert written.endswith(bytes([0x0A, *varint(400)]) + struct.pack("<f", 0.5) * 100)
