"""Batches are divided between records."""

import struct

import pytest

from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.records.cutting import make_cutter
from sagehen.services.sagemaker.transform.runner.halving import halve


@pytest.mark.parametrize("records", [2, 3, 7])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines(records: int, end: bytes) -> None:
    lines = [b"line %d" % number for number in range(records)]
    left, right = halve(Batch(end.join(lines), records, 5), "Line")
    middle = records // 2
    assert left == Batch(end.join(lines[:middle]), middle, 5)
    assert right == Batch(end.join(lines[middle:]), records - middle, 5 + middle)


def test_quoted_newlines_are_in_a_record() -> None:
    left, right = halve(Batch(b'"a\nb",1\nc,2', 2, 0), "Line", quotes=True)
    assert (left.payload, right.payload) == (b'"a\nb",1', b"c,2")


def record_io(content: bytes) -> bytes:
    head = struct.pack("<II", 0xCED7230A, len(content))
    return head + content + bytes(-len(content) % 4)


def test_frames() -> None:
    data = b"".join(record_io(b"x" * size) for size in (1, 2, 7, 4, 5))
    cutter = make_cutter("RecordIO", "MultiRecord", 1000)
    (batch,) = cutter.feed(data) + cutter.end()
    left, right = halve(batch, "RecordIO")
    assert left.payload == record_io(b"x") + record_io(b"xx")
    assert (right.payload, right.first_record, right.records) == (data[len(left.payload) :], 2, 3)
