"""Plain numbers of CSV are read as Python's `float` reads them, bit for bit."""

import math
from array import array
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sagehen.containers.modelserver.adapters.shared import plain_csv
from sagehen.containers.modelserver.adapters.shared import table as tables
from sagehen.containers.modelserver.adapters.shared.plain_csv import has_infinity, read_plain_rows
from sagehen.containers.modelserver.adapters.shared.table import parse_csv


def in_python(cells, form):
    """The numbers as an array has them that Python fills."""
    return array(form, [float(cell) if cell else math.nan for cell in cells]).tobytes()


def digits(least, most):
    return st.text("0123456789", min_size=least, max_size=most)


PLAIN = st.one_of(
    st.just(""),
    st.tuples(st.sampled_from(["", "-"]), digits(1, 9), digits(0, 6)).map(
        lambda parts: f"{parts[0]}{parts[1]}.{parts[2]}"
    ),
    st.tuples(st.sampled_from(["", "-"]), digits(1, 15)).map("".join),
    digits(1, 15).map(".{}".format),
    st.floats(-1e6, 1e6, width=32).map(lambda number: f"{number:.3f}"),
)
LONG = st.one_of(
    PLAIN,
    st.floats(1e-4, 1e15).map(repr),
    st.floats(-1e15, -1e-4).map(repr),
    st.tuples(digits(1, 9), digits(7, 10)).map(".".join),
    digits(16, 19).map("0.000{}".format),
)


@given(st.lists(PLAIN, min_size=1, max_size=40), st.sampled_from("fd"))
@example(["-0", "-0.0", "-.5", "5.", "00", "999999999999999"], "d")
def test_up_to_fifteen_digits_are_exact(cells, form):
    got = read_plain_rows("".join(f"{cell}\n" for cell in cells).encode(), 1, form)
    assert got is not None
    assert got.tobytes() == in_python(cells, form)


@given(st.lists(LONG, min_size=1, max_size=40))
@example(["16777217.0000000000", "16777217.0000000001", "16777216.9999999999", "9" * 19])
@example(["0.1000000014901161193", "0.1000000052154064178", "0.10000000521540641"])
@example(["000000018439999999999999", "0" * 24, f"0.{1:022}", "9007199254740993"])
def test_up_to_nineteen_digits_are_exact_in_single_precision(cells):
    got = read_plain_rows("".join(f"{cell}\n" for cell in cells).encode(), 1, "f")
    assert got is not None
    assert got.tobytes() == in_python(cells, "f")


@given(st.floats(2**-10, 2**20, width=32), st.integers(-3, 3))
def test_numbers_halfway_between_two_of_single_precision_are_exact(number, steps):
    half = (number + float(np.nextafter(np.float32(number), np.float32(np.inf)))) / 2
    for _ in range(abs(steps)):
        half = math.nextafter(half, math.inf if steps > 0 else 0.0)
    text = f"{half:.{18 - len(str(int(half)))}f}"
    got = read_plain_rows(f"{text}\n".encode(), 1, "f")
    assert got is not None
    assert got.tobytes() == in_python([text], "f")


@pytest.mark.parametrize(
    "line",
    [
        "1e5", "+1", " 1", "1 ", "1\t", "nan", "inf", "1_0", "0x1", "1.2.3", "1-2", "--1", "-", ".",
        "-.", "1\r", "\x8a", "1/2", "1:2", '"1"', "1;2", "18440000000000000000", "0." + 23 * "0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("rows", ["{}\n", "1\n{}\n", "{}\n1\n"])
def test_anything_else_is_left_to_others(line, rows):
    assert read_plain_rows(rows.format(line).encode("latin-1"), 1, "f") is None


def test_more_digits_than_a_double_holds_are_left_to_others():
    assert read_plain_rows(b"9007199254740993\n", 1, "d") is None
    got = read_plain_rows(b"9007199254740992\n", 1, "d")
    assert got is not None
    assert got.tolist() == [2.0**53]


@pytest.mark.parametrize("text", [b"1,2\n3\n", b"1\n2,3\n", b"1,2,3\n4\n", b"1\n2,3,4\n", b"1\n"])
def test_rows_of_another_length_are_left_to_others(text):
    assert read_plain_rows(text, 2, "f") is None


def test_a_table():
    got = read_plain_rows(b"1.5,-2,\n,.25,3\n", 3, "f")
    assert got is not None
    np.testing.assert_array_equal(got, [1.5, -2, np.nan, np.nan, 0.25, 3])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_large_body_is_read_in_this_way(end):
    rows = 3 * plain_csv.CHUNK_BYTES // len(b"1.5,-0.25,\n")
    with patch.object(tables, "_read_numbers", None), patch.object(tables, "_numbers", None):
        table = parse_csv((b"1.5,-0.25," + end) * rows)
    assert (table.count, table.columns) == (rows, 3)
    np.testing.assert_array_equal(
        np.array(table.cells).reshape(-1, 3), np.tile([1.5, -0.25, np.nan], (rows, 1))
    )


@pytest.mark.parametrize("odd", [b"1e-3,2", b" 1,2", b"nan,-0"])
def test_a_chunk_with_other_numbers_is_read_as_before(odd):
    plain = b"1.25,2.5\n" * 20_000
    table = parse_csv(plain + odd + b"\n" + plain)
    assert table.count == 40_001
    expected = [1.25, 2.5] * 20_000 + parse_csv(odd).cells.tolist() + [1.25, 2.5] * 20_000
    assert table.cells.tobytes() == array("f", expected).tobytes()


def test_a_large_body_without_plain_numbers_is_soon_read_as_before():
    with patch.object(plain_csv, "read_plain_rows", return_value=None) as read:
        table = parse_csv(b"1e3,2\n" * 200_000)
    assert table.count == 200_000
    assert read.call_count == tables.PLAIN_TRIES


def test_an_error_names_its_line_in_a_large_body():
    body = b"1,2\n" * 100_000 + b"3\n" + b"1,2\n" * 100_000
    with pytest.raises(ValueError, match="line 100001 has 1 cells, the first line has 2"):
        parse_csv(body)


@pytest.mark.parametrize("infinity", [math.inf, -math.inf])
def test_infinities(infinity):
    cells = array("f", [1.0, math.nan] * 5000)
    assert not has_infinity(cells)
    assert not tables.has_infinity(cells)
    cells[-1] = infinity
    assert has_infinity(cells)
    assert tables.has_infinity(cells)
    assert tables.has_infinity(cells[-2:])
