"""numpy's own forms, from who would have more memory taken than there are bytes."""

import io

import numpy as np
import pytest

from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.arrays import rows_of
from support.frameworks import sparse


def packed(matrix):
    out = io.BytesIO()
    sparse.save_npz(out, matrix)
    return out.getvalue()


def boastful(count):
    """A head that says so many numbers, and none behind it."""
    out = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(out, about)
    return out.getvalue()


@pytest.mark.parametrize("count", [10, 10**13])
def test_a_head_that_says_more_than_there_is(count):
    with pytest.raises(ValueError, match=r"EOF|its header says"):
        codecs.decode(boastful(count), codecs.NPY)


def test_a_small_body_does_not_unpack_to_a_large_one(monkeypatch):
    body = packed(sparse.csr_matrix(np.ones((100, 100))))
    assert codecs.decode(body, codecs.NPZ).shape == (100, 100)
    monkeypatch.setattr(codecs, "MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"unpacks to \d+ bytes; at most 10000"):
        codecs.decode(body, codecs.NPZ)


def test_a_few_bytes_do_not_stand_for_very_many_rows():
    with pytest.raises(ValueError, match="it has 40000000 rows"):
        codecs.decode(packed(sparse.coo_matrix(([1.0], ([0], [0])), (40_000_000, 4))), codecs.NPZ)


def test_sparse_rows_of_zeros_are_rows():
    assert rows_of(packed(sparse.csr_matrix((3, 4))), codecs.NPZ, "float32").shape == (3, 4)
    with pytest.raises(ValueError, match="no rows"):
        rows_of(packed(sparse.csr_matrix((0, 4))), codecs.NPZ, "float32")
