import math

import pytest

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
