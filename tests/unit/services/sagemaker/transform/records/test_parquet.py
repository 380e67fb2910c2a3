"""Parquet becomes text, a row group at a time."""

import csv
import datetime
import decimal
import io
import json
import sys

import pytest

from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.transform.records.cutting import make_cutter
from sagehen.services.sagemaker.transform.records.parquet import ParquetError, read_parquet


class Source:
    """An object that notes what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads: list[int] = []

    def read_range(self, offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= self.size
        self.reads.append(length)
        return self.data[offset : offset + length]


@pytest.fixture(scope="module")
def pa():
    return pytest.importorskip("pyarrow", reason="the parquet extra is not installed")


def written(pa, columns, **options) -> bytes:
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def text_of(pa, columns, content_type="text/csv", **options) -> str:
    source = Source(written(pa, columns, **options))
    return b"".join(read_parquet(source, content_type)).decode()


def test_rows_become_csv_without_a_header(pa):
    columns = {"id": [1, 2, None], "x": [0.5, 1e20, -3.0], "ok": [True, False, None]}
    assert text_of(pa, columns) == "1,0.5,true\n2,1e+20,false\n,-3,\n"


def test_rows_become_lines_of_json(pa):
    columns = {
        "id": [1, None],
        "x": [[0.5, 1.0], []],
        "in": [{"a": "ü"}, None],
        "n": [float("nan"), 1.0],
        "d": [decimal.Decimal("1.10"), None],
        "b": [b"ab", None],
    }
    assert [
        json.loads(line) for line in text_of(pa, columns, "application/jsonlines").splitlines()
    ] == [
        {"id": 1, "x": [0.5, 1.0], "in": {"a": "ü"}, "n": None, "d": 1.1, "b": "YWI="},
        {"id": None, "x": [], "in": None, "n": 1.0, "d": None, "b": None},
    ]


def test_text_stays_whole_in_csv(pa):
    values = ["a,b", 'say "x"', "two\nlines", "", "plain"]
    text = text_of(pa, {"t": values, "n": list(range(5))})
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == values
    cutter = make_cutter("Line", "SingleRecord", 100, "text/csv", csv_quoted_newlines=True)
    assert len(cutter.feed(text.encode()) + cutter.end()) == 5


def test_the_null_of_an_only_column_is_a_record(pa):
    text = text_of(pa, {"t": [None, "a\n\nb", None, "c", None]})
    assert text == '""\n"a\n\nb"\n""\n"c"\n""\n'
    assert text_of(pa, {"n": [1, None]}) == '1\n""\n'


def test_times_do_not_depend_on_other_libraries(pa):
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    for unit, fraction in (("ms", ".000"), ("us", ".000678"), ("ns", ".000678")):
        column = pa.array([moment]).cast(pa.timestamp(unit), safe=False)
        assert text_of(pa, {"t": column}) == f"2024-01-02 03:04:05{fraction}\n"
        line = json.loads(text_of(pa, {"t": column}, "application/jsonlines"))
        assert line["t"].startswith("2024-01-02T03:04:05")


def test_categories_are_their_text(pa):
    column = pa.array(["u", "v", "u"]).dictionary_encode()
    assert text_of(pa, {"c": column, "n": [1, 2, 3]}) == '"u",1\n"v",2\n"u",3\n'


def test_nested_columns_are_refused_for_csv(pa):
    with pytest.raises(ParquetError, match=r'column "x" holds list.*PARQUET_AS to application'):
        text_of(pa, {"x": [[1, 2]]})


def test_columns_of_one_name_are_refused_for_json(pa):
    table = pa.table([[1], [2]], names=["a", "a"])
    assert text_of(pa, table) == "1,2\n"
    with pytest.raises(ParquetError, match="Several columns have one name"):
        text_of(pa, table, "application/jsonlines")


def test_an_object_without_rows_has_no_text(pa):
    assert text_of(pa, {"a": pa.array([], pa.int64())}) == ""


def test_a_row_group_is_read_at_a_time(pa):
    data = written(pa, {"a": list(range(100_000))}, row_group_size=10_000, use_dictionary=False)
    source = Source(data)
    pieces = read_parquet(source, "text/csv")
    first = next(pieces)
    assert first.startswith(b"0\n1\n")
    assert sum(source.reads) < len(data) / 2
    assert sum(piece.count(b"\n") for piece in pieces) + first.count(b"\n") == 100_000
    assert max(source.reads) < len(data) / 4


@pytest.mark.parametrize("content_type", ["text/csv", "application/jsonlines"])
def test_what_is_no_parquet_is_an_error(pa, content_type):
    good = written(pa, {"a": list(range(1000))})
    for data in (b"", b"a,b\n1,2\n", good[:-20], good[:20] + bytes(200) + good[220:]):
        with pytest.raises(ParquetError, match="cannot be read as Parquet"):
            list(read_parquet(Source(data), content_type))


def test_errors_of_the_source_are_its_own(pa):
    class Gone(Exception):
        pass

    class Broken(Source):
        error: Exception

        def read_range(self, offset: int, length: int) -> bytes:
            raise self.error

    for error in (Gone(), OSError("no route")):
        source = Broken(bytes(100))
        source.error = error
        with pytest.raises(type(error)) as raised:
            list(read_parquet(source, "text/csv"))
        assert raised.value is error


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r"pyarrow is not installed.*pip install"):
        list(read_parquet(Source(b""), "text/csv"))
