"""Ends of lines are found in every piece, with those of empty lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.transform.records.record_ends import RecordEnds
from support.chunks import chunkings, divided

TEXTS = st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b'"', b"xy"]), max_size=30)


@pytest.mark.parametrize("quotes", [False, True])
@given(data=TEXTS.map(b"".join), sizes=chunkings(8))
def test_ends_are_those_of_a_simple_reader(quotes, data, sizes):
    finder = RecordEnds(quotes=quotes)
    found = [finder.find(piece) for piece in divided(data, sizes)]
    expected, empty, begin = [], [], 0
    for at, octet in enumerate(data):
        inside = quotes and data[:at].count(b'"') % 2
        if octet == 10 and not inside:
            expected.append(at)
            if data[begin:at] in (b"", b"\r"):
                empty.append(at)
            begin = at + 1
    assert [at for ends in found for at in ends.all.tolist()] == expected
    assert [at for ends in found for at in ends.empty.tolist()] == empty
    assert finder.is_inside_quotes == bool(quotes and data.count(b'"') % 2)


def test_large_pieces_are_searched_in_slices():
    data = (b"x" * 1000 + b"\n") * 1000
    assert RecordEnds().find(data).all.tolist() == list(range(1000, len(data), 1001))
