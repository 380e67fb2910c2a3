import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sagehen.containers.modelserver.adapters.shared.number_text import compact_repr


def as_python(values) -> bytes:
    return repr(values).replace(" ", "").encode()


@given(st.lists(st.floats(width=32), max_size=30))
@example([1e-4, 9.999e-5, 1e-5, 9.9e-6, -1.5e-5, 1e15, 1e16, -1e16, 1.5e22, 5e-324, -0.0, 0.0])
@example([10.00001, 120.00001525878906, 100000.00009])
def test_single_precision(values):
    assert compact_repr(values) == as_python(values)


@given(st.lists(st.lists(st.floats(), min_size=2, max_size=2), min_size=1, max_size=10))
def test_rows(values):
    assert compact_repr(values) == as_python(values)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_word_for(odd):
    assert compact_repr([0.5, odd, 1e-5]) == as_python([0.5, odd, 1e-5])
