"""Compressed objects are unpacked piece by piece, and damage is found."""

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.transform.records.gzip import BrokenGzip, Gunzip
from support.chunks import chunkings, divided


def unpack(data: bytes, sizes=(), piece: int = 1 << 20) -> bytes:
    gunzip = Gunzip(piece)
    pieces = [part for fed in divided(data, list(sizes)) for part in gunzip.feed(fed)]
    gunzip.end()
    assert all(0 < len(part) <= piece for part in pieces)
    return b"".join(pieces)


@given(
    st.lists(st.binary(max_size=300), max_size=4),
    chunkings(60),
    st.integers(1, 400),
    st.integers(0, 20),
)
def test_any_members_unpack_however_they_come(members, sizes, piece, zeros):
    packed = b"".join(map(gzip.compress, members))
    assert unpack(packed + bytes(zeros) * bool(members), sizes, piece) == b"".join(members)


def test_a_bomb_unpacks_in_bounded_pieces():
    packed = gzip.compress(bytes(50 << 20))
    gunzip = Gunzip()
    sizes = [len(part) for part in gunzip.feed(packed)]
    gunzip.end()
    assert sum(sizes) == 50 << 20
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("end", [1, 5, 10, 11, 100, -1, -8, -9])
def test_a_truncated_object_is_an_error(end):
    packed = gzip.compress(random.Random(1).randbytes(1000))
    with pytest.raises(BrokenGzip, match="ends inside a member"):
        unpack(packed[:end])


@pytest.mark.parametrize("at", [0, 1, 2, 500, -1, -5])
def test_a_damaged_object_is_an_error(at):
    packed = bytearray(gzip.compress(random.Random(1).randbytes(1000)))
    packed[at] ^= 0xFF
    with pytest.raises(BrokenGzip, match="not valid gzip near byte"):
        unpack(bytes(packed))


@pytest.mark.parametrize("data", [b"a,b\n1,2\n", gzip.compress(b"a", mtime=0) + b"rest"])
def test_what_is_no_gzip_is_an_error_that_says_what_to_do(data):
    with pytest.raises(BrokenGzip, match="set CompressionType to None"):
        unpack(data)


def test_an_empty_object_unpacks_to_nothing():
    assert unpack(b"") == b""
