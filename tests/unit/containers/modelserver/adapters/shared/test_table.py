import math
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.containers.modelserver.adapters.shared import table as tables
from sagehen.containers.modelserver.adapters.shared.table import parse_csv, parse_libsvm


def cells(table):
    return [None if math.isnan(cell) else cell for cell in table.cells]


@pytest.mark.parametrize(
    ("body", "count", "columns", "expected"),
    [
        (b"1,2,3", 1, 3, [1, 2, 3]),
        (b"1,2,3\n", 1, 3, [1, 2, 3]),
        (b" 1, 2\r\n3,4\r\n", 2, 2, [1, 2, 3, 4]),
        (b"1,,nan,NaN", 1, 4, [1, None, None, None]),
        (b",2", 1, 2, [None, 2]),
        (b"1\t2", 1, 2, [1, 2]),
        (b"1;2\n3;4", 2, 2, [1, 2, 3, 4]),
        (b"1 2", 1, 2, [1, 2]),
        (b"5", 1, 1, [5]),
        (b"5\n6", 2, 1, [5, 6]),
        (b"-1e-3,+2.5E2", 1, 2, [pytest.approx(-0.001), 250]),
    ],
)
def test_csv(body, count, columns, expected):
    table = parse_csv(body)
    assert (table.count, table.columns, cells(table)) == (count, columns, expected)


@pytest.mark.parametrize("body", [b"a,b", b"1,2\n3", b"1,2\n\n3,4", b"0x10,1", b"\xff,1"])
def test_what_is_no_csv_of_numbers(body):
    with pytest.raises(ValueError, match=r"could not convert|cells"):
        parse_csv(body)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, width=32).map(repr),
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["", " 1", "1 ", "-0", "+1", ".5", "1.", "01", "1_0", "1e400", "nan", "x", "[1]"]
    ),
)


def outcome(body):
    try:
        table = parse_csv(body)
    except ValueError as error:
        return str(error)
    return table.count, table.columns, table.cells.tobytes()


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=3), min_size=2, max_size=5))
def test_plain_numbers_are_read_like_others(rows):
    body = "\n".join(",".join(row) for row in rows).encode()
    quick = outcome(body)
    with patch.object(tables, "_add_plain", return_value=False):
        assert outcome(body) == quick


@pytest.mark.parametrize("cell", ["-0", "-0 ", "-0\t", " -0\r", "-0.0", "-0e1", "-00"])
@pytest.mark.parametrize("row", ["1,{}", "{},1"])
def test_zero_keeps_its_sign(cell, row):
    body = f"1,2\n{row.format(cell)}\n3,4".encode()
    assert [math.copysign(1, number) for number in parse_csv(body).cells].count(-1) == 1


def test_many_rows_are_read_the_quick_way():
    with patch.object(tables, "_numbers", None):
        table = parse_csv(b"1.5,-0.5\r\n" * 1000)
    assert (table.count, table.columns) == (1000, 2)
    assert table.cells.tolist() == [1.5, -0.5] * 1000


def test_an_error_names_its_line():
    with pytest.raises(ValueError, match="line 700 has 1 cells"):
        parse_csv(b"1,2\n" * 699 + b"3\n" + b"1,2\n" * 50)


def test_libsvm_counts_as_xgboost_does_where_it_reads_training_data():
    assert cells(parse_libsvm(b"1 1:5 3:7", 4)) == [None, 5, None, 7]
    assert cells(parse_libsvm(b"0:5 2:7\n1:6", 3)) == [5, None, 7, None, 6, None]
    assert cells(parse_libsvm(b"1\n1:5", 2)) == [None, None, None, 5]
    assert parse_libsvm(b"0 1:1 9:1").columns == 10


def test_libsvm_beyond_the_model_says_how_wide_it_is():
    table = parse_libsvm(b"1:1 9:1", 3)
    assert (table.columns, len(table.cells)) == (10, 0)


@pytest.mark.parametrize("body", [b"a:1", b"1:b", b"-1:2", b"1:1:1", b"1", b"1,2"])
def test_what_is_no_libsvm(body):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_libsvm(body, 3)


def test_a_small_body_cannot_ask_for_a_huge_table():
    with pytest.raises(ValueError, match="too many"):
        parse_libsvm(b"0\n" * 1000 + b"0:1", 1_000_000)
