"""Rows of CSV and JSON: keys, answers, and what is wrong with a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.base.errors import Invalid
from sagehen.frame.offline_results import rows
from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.offline_results.rows import csv_key, csv_rows, json_key, lines, row_reader


def reader(key: str, answer: str = "rest"):
    return row_reader(OfflineResults(source="s3://b/", key=key, answer=answer, request_key=key))


@pytest.mark.parametrize(
    ("key", "answer", "row", "read"),
    [
        ("0", "rest", b"7,0.5", (b"7", b"0.5")),
        ("0", "rest", b"7,1,2,0.5", (b"7", b"1,2,0.5")),
        ("-1", "rest", b"1,2,7", (b"7", b"1,2")),
        ("1", "rest", b"1,7,2", (b"7", b"1,2")),
        ("0", "rest", b"7", (b"7", b"")),
        ("0", "line", b"7,0.5", (b"7", b"7,0.5")),
        ("0", "-1", b"7,1,2,0.5", (b"7", b"0.5")),
        ("0", "1", b"7,1,2", (b"7", b"1")),
        ("0", "rest", b'"a,b",0.5', (b"a,b", b"0.5")),
        ("0", "rest", b'"a ""b""","x, y",2', (b'a "b"', b'"x, y",2')),
        ("0", "line", b'"7",0.5', (b"7", b'"7",0.5')),
        ("0", "1", b'7,"x, y"', (b"7", b'"x, y"')),
        ("0", "rest", b'"a\nb",0.5', (b"a\nb", b"0.5")),
        ("0", "rest", 'Grün,"ä\u2028\x85"'.encode(), ("Grün".encode(), "ä\u2028\x85".encode())),
        ("0", "rest", b"\xff,1", (b"\xff", b"1")),
        ("id", "rest", b'{"id": "7", "score": 0.50}', (b"7", b'{"score":0.50}')),
        ("id", "rest", b'{"id": 7}', (b"7", b"{}")),
        ("id", "rest", b'{"id": -7.50, "a": [1, {"b":2}]}', (b"-7.50", b'{"a":[1, {"b":2}]}')),
        ("$.id", "line", b'{"id": "\\u00fc"}', ("ü".encode(), b'{"id": "\\u00fc"}')),
        ("id", "SageMakerOutput", b'{"id":1,"SageMakerOutput":[0.1, 2]}', (b"1", b"[0.1, 2]")),
        ("user.id", "out.score", b'{"user":{"id":"u"},"out":{"score":1.0}}', (b"u", b"1.0")),
    ],
)
def test_a_row_has_a_key_and_an_answer(key: str, answer: str, row: bytes, read) -> None:
    assert reader(key, answer)(row) == read


@pytest.mark.parametrize(
    ("key", "answer", "row", "message"),
    [
        ("2", "rest", b"1,2", "it has no column 2, only 2 columns"),
        ("-3", "rest", b"1,2", "it has no column -3"),
        ("0", "2", b"1,2", "it has no column 2"),
        ("0", "rest", b'"1"x,2', "it is not CSV"),
        ("0", "rest", b"k" * 1025 + b",1", "its key has 1025 bytes"),
        ("id", "rest", b'{"name":1}', "it has no field id"),
        ("id", "out", b'{"id":1}', "it has no field out"),
        ("a.b", "line", b'{"a":{}}', "it has no field a.b"),
        ("a.b", "line", b'{"a":1}', "its field a is not a JSON object"),
        ("id", "rest", b"[1,2]", "it is not a JSON object"),
        ("id", "rest", b"7,0.5", "it is not a JSON object"),
        ("id", "rest", b"", "it is not a JSON object"),
        ("id", "rest", b'{"id":' + b"[" * 100_000, "it is not a JSON object"),
        ("a.b", "line", b'{"a":{"b":' + b"[" * 100_000, "is not a JSON object"),
        ("id", "rest", b'{"id":null}', "its field id is neither a string nor a number"),
        ("id", "rest", b'{"id":true}', "neither a string nor a number"),
        ("id", "rest", b'{"id":[7]}', "neither a string nor a number"),
        ("id", "rest", b'{"id":"\xff"}', "its field id is not a string"),
        ("id", "rest", b'{"id":7,"\xff":1}', "it is not a JSON object"),
        ("id", "rest", b'{"id":"\\ud800"}', "it is not a JSON object"),
        ("a.b", "line", b'{"a":{"b":7,"\xff":1}}', "its field a is not a JSON object"),
        ("id", "rest", b'{"id":""}', "its key is empty"),
        ("0", "rest", b",0.5", "its key is empty"),
        ("-1", "rest", b'0.5,""', "its key is empty"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(key: str, answer: str, row: bytes, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        reader(key, answer)(row)


def test_a_key_is_the_same_in_csv_and_json() -> None:
    keys = {csv_key(b"7,1", 0), csv_key(b'"7",1', 0), json_key(b'{"id":7}', ["id"])}
    assert keys | {json_key(b'{"id":"7"}', ["id"])} == {b"7"}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_do_not_depend_on_the_chunks(size: int) -> None:
    data = b"a,1\r\nb,2\n\nlonger line,3\nlast"
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(lines(chunks)) == [b"a,1", b"b,2", b"", b"longer line,3", b"last"]


def test_a_line_end_at_the_end_makes_no_line() -> None:
    assert list(lines([b"a\n"])) == [b"a"]
    assert list(lines([])) == list(lines([b""])) == []


def test_quoted_fields_may_hold_line_ends() -> None:
    data = [b'1,"two\nlines"\n2,plain\n3,"a ""quoted"" word"\n4,"x\n\n', b'y"\n']
    assert list(csv_rows(data)) == [
        b'1,"two\nlines"',
        b"2,plain",
        b'3,"a ""quoted"" word"',
        b'4,"x\n\ny"',
    ]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_return_ends_a_row_and_stays_between_quotes(size: int) -> None:
    data = b'1,"two\r\nlines"\r\n2,plain\r\n\r\n3,"x\r"\r\n4,last\r'
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(csv_rows(chunks)) == [b'1,"two\r\nlines"', b"2,plain", b"", b'3,"x\r"', b"4,last"]


def test_a_quote_that_is_never_closed_is_refused() -> None:
    with pytest.raises(Invalid, match="a quote is not closed"):
        list(csv_rows([b'1,"two\n2,x\n']))


@pytest.mark.parametrize("cut", [lines, csv_rows])
def test_rows_have_a_bound(monkeypatch: pytest.MonkeyPatch, cut) -> None:
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 100)
    with pytest.raises(Invalid, match="it has more than 100 bytes"):
        list(cut([b"x" * 60, b"x" * 60, b"\n"]))
    with pytest.raises(Invalid, match="it has more than 100 bytes"):
        list(csv_rows([b'"' + b"x\n" * 101]))


KEYS = st.text(min_size=1, max_size=200)


@given(st.tuples(KEYS, KEYS), st.lists(st.text(), max_size=2))
def test_any_csv_that_the_standard_library_writes_is_read(keys, others: list[str]) -> None:
    import csv
    import io

    fields = [*keys, *others]
    written = io.StringIO()
    csv.writer(written).writerow(fields)
    (row,) = csv_rows([written.getvalue().encode()])
    assert csv_key(row, 1) == fields[1].encode()
    key, answer = reader("0")(row)
    assert key == fields[0].encode()
    (rest,) = csv.reader(io.StringIO(answer.decode(), newline=""))
    assert rest == fields[1:]
