"""Columns of CSV are selected without a change to how they are written."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.transform.data_processing.csv_rows import (
    BareQuote,
    column_selector,
    split_fields,
    split_rows,
)
from sagehen.services.sagemaker.transform.data_processing.json_path import (
    PartMissing,
    PathSyntaxError,
    parse_path,
)

FIELDS = st.lists(st.text('a,"b\n', max_size=5), min_size=2, max_size=5)


def written(rows) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def read(row: bytes) -> list[str]:
    return next(csv.reader(io.StringIO(row.decode(), newline="")), [])


def select(expression: str, *rows: bytes) -> list[bytes]:
    return column_selector(parse_path(expression, mixed=True))(list(rows))


@given(FIELDS)
def test_fields_are_those_of_a_csv_reader(fields):
    row = written([fields])[:-1]
    found = split_fields(row)
    assert b",".join(found) == row
    assert [read(field + b",")[0] for field in found] == fields


@given(st.lists(FIELDS, max_size=5))
def test_rows_are_those_of_a_csv_reader(rows):
    found = split_rows(written(rows), quoted_newlines=True)
    assert [read(row) for row in found] == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
    ],
)
@pytest.mark.parametrize("quoted", [False, True])
def test_rows_end_with_newlines(text, rows, quoted):
    assert split_rows(text, quoted_newlines=quoted) == rows


@pytest.mark.parametrize(
    "row", [b'a"b', b'a,"b', b'"a"b,c', b'"a""', b'a,b"c"', b'"', b'"a",b "c",d', b'"a" ,b']
)
def test_a_bare_quote_is_an_error(row):
    with pytest.raises(BareQuote):
        split_fields(row)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$", [b'1,"a,b",3,4']),
        ("$[1:]", [b'"a,b",3,4']),
        ("$[:-1]", [b'1,"a,b",3']),
        ("$[0:-2]", [b'1,"a,b"']),
        ("$[0]", [b"1"]),
        ("$[-1]", [b"4"]),
        ("$[0,-1]", [b"1,4"]),
        ("$[2,0]", [b"3,1"]),
        ("$[1:3]", [b'"a,b",3']),
        ("$[:2]", [b'1,"a,b"']),
        ("$[0,2:]", [b"1,3,4"]),
    ],
)
def test_columns_are_selected(expression, expected):
    assert select(expression, b'1,"a,b",3,4') == expected
    plain = select(expression, b"1,ab,3,4", b"5,cd,6,7")
    assert plain[0] == expected[0].replace(b'"a,b"', b"ab")
    assert len(plain) == 2


@given(
    st.lists(st.lists(st.sampled_from(["a", "", "b,", 'c"']), min_size=3, max_size=6), max_size=4),
    st.sampled_from(["[1:]", "[2:]", "[:-1]", "[:-2]", "[0:-1]", "[1:-1]", "[:2]", "[0,-1]"]),
)
def test_ways_of_selection_agree_with_lists(rows, part):
    expected = []
    for fields in rows:
        found = eval(f"fields{part}") if ":" in part else [fields[0], fields[-1]]
        expected.append(found)
    texts = written(rows).split(b"\n")[:-1]
    assert [read(row + b",")[:-1] for row in select("$" + part, *texts)] == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("$[3]", r"it has 3 columns, and none at \[3\]"),
        ("$[0,-4]", r"it has 3 columns, and none at \[-4\]"),
        ("$[3:]", "none of its 3 columns is selected"),
        ("$[:-3]", "none of its 3 columns is selected"),
        ("$[2:1]", "none of its 5 columns is selected"),
    ],
)
def test_columns_that_a_row_lacks_are_named(expression, reason):
    with pytest.raises(PartMissing, match=reason):
        select(expression, b"1,2,3,4,5", b"1,2,3")


@pytest.mark.parametrize("expression", ["$.a", "$['a']", "$[*]", "$[0][1]"])
def test_columns_have_no_names(expression):
    with pytest.raises(PathSyntaxError, match="only indexes of columns"):
        select(expression, b"1,2")
