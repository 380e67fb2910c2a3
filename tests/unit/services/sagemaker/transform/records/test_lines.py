"""Lines are cut between records, wherever the pieces of an object end."""

import csv
import io
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.transform.records.cutting import (
    Batch,
    BrokenRecords,
    RecordTooLarge,
    make_cutter,
)
from support.chunks import chunkings, divided

TEXTS = st.lists(
    st.sampled_from([b"a", b"bb", b"1,2,3", b"\n", b"\r\n", b"\r", b"", b"x" * 9]), max_size=40
).map(b"".join)
QUOTED = st.lists(
    st.sampled_from([b"a", b",", b'"b\nc"', b'""', b'"d""\r\ne"', b"\n", b"\r\n"]), max_size=40
).map(b"".join)


def cut(data: bytes, limit: int = 0, sizes=(), strategy="MultiRecord", quoted=False) -> list[Batch]:
    cutter = make_cutter("Line", strategy, limit, "text/csv", csv_quoted_newlines=quoted)
    batches = []
    for piece in divided(data, list(sizes)):
        batches += cutter.feed(piece)
    return batches + cutter.end()


def outcome(*args, **options):
    """The batches, or which record is wrong."""
    try:
        return cut(*args, **options)
    except (RecordTooLarge, BrokenRecords) as error:
        return type(error), error.record, error.offset


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    return [*(line.removesuffix(b"\r") for line in lines), last]


def test_lines_go_together_while_they_fit():
    assert cut(b"aa\nbb\ncc\nd\n", 5) == [Batch(b"aa\nbb", 2, 0), Batch(b"cc\nd", 2, 2)]


def test_a_last_line_needs_no_newline():
    assert cut(b"aa\nbb", 100) == cut(b"aa\nbb\n", 100) == [Batch(b"aa\nbb", 2, 0)]


def test_single_records_have_no_terminator():
    assert cut(b"aa\r\nbb\nc\rc", 100, strategy="SingleRecord") == [
        Batch(b"aa", 1, 0),
        Batch(b"bb", 1, 1),
        Batch(b"c\rc", 1, 2),
    ]


def test_carriage_returns_between_records_stay():
    assert cut(b"aa\r\nbb\r\n", 100) == [Batch(b"aa\r\nbb", 2, 0)]


@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
def test_empty_lines_are_no_records(strategy):
    batches = cut(b"\n\r\naa\n\n\nbb\r\n\r\ncc\n\n", 100, strategy=strategy)
    assert [line for batch in batches for line in lines_of(batch.payload)] == [b"aa", b"bb", b"cc"]
    assert sum(batch.records for batch in batches) == 3


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\n\n"])
@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
def test_an_object_without_records_has_no_batches(data, strategy):
    assert cut(data, 10, strategy=strategy) == []


@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\nb", b"\r\nb\n"])
def test_a_record_may_be_as_large_as_a_payload(strategy, ending):
    assert cut(b"aaaaa" + ending, 5, strategy=strategy)[0] == Batch(b"aaaaa", 1, 0)
    with pytest.raises(RecordTooLarge, match="MaxPayloadInMB") as raised:
        cut(b"aaaaa" + ending, 4, strategy=strategy)
    assert (raised.value.record, raised.value.offset) == (0, 0)


@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
def test_the_error_says_which_record_is_too_large(strategy):
    with pytest.raises(RecordTooLarge, match=r"Record 2, which begins at byte 6, .* 4 bytes"):
        cut(b"aa\nbb\nccccc\ndd\n", 4, strategy=strategy)


@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
def test_a_record_without_end_is_found_before_it_is_held(strategy):
    cutter = make_cutter("Line", strategy, 1000)
    for _ in range(10):
        cutter.feed(b"x" * 100)
    with pytest.raises(RecordTooLarge):
        cutter.feed(b"xx")


@given(TEXTS, st.integers(1, 40), chunkings(20), st.sampled_from(["SingleRecord", "MultiRecord"]))
def test_batches_do_not_depend_on_how_the_object_comes(data, limit, sizes, strategy):
    expected = outcome(data, limit, strategy=strategy)
    assert outcome(data, limit, sizes, strategy=strategy) == expected


@given(TEXTS, st.integers(1, 40), st.sampled_from(["SingleRecord", "MultiRecord"]))
def test_every_record_is_in_one_batch(data, limit, strategy):
    records = [line for line in lines_of(data) if line]
    batches = outcome(data, limit, strategy=strategy)
    if isinstance(batches, tuple):
        assert len(records[batches[1]]) > limit
        return
    assert all(len(batch.payload) <= limit for batch in batches)
    at = 0
    for batch in batches:
        held = [line for line in lines_of(batch.payload) if line]
        assert batch.first_record == at
        assert batch.records == len(held)
        assert held == records[at : at + batch.records]
        at += batch.records
    assert at == len(records)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(9, 40))
def test_batches_are_as_full_as_they_can_be(sizes, limit):
    batches = cut(b"\n".join(b"x" * size for size in sizes), limit)
    for batch, after in pairwise(batches):
        assert len(batch.payload) + 1 + len(lines_of(after.payload)[0]) > limit


@given(QUOTED, st.integers(1, 40), chunkings(20), st.sampled_from(["SingleRecord", "MultiRecord"]))
def test_quoted_newlines_do_not_depend_on_how_the_object_comes(data, limit, sizes, strategy):
    expected = outcome(data, limit, strategy=strategy, quoted=True)
    assert outcome(data, limit, sizes, strategy=strategy, quoted=True) == expected


@given(
    st.lists(st.lists(st.text('a,"\n', max_size=6), min_size=2, max_size=3), max_size=20),
    st.integers(40, 80),
    chunkings(20),
)
def test_rows_with_quoted_newlines_stay_whole(rows, limit, sizes):
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    batches = cut(text.getvalue().encode(), limit, sizes, quoted=True)
    read = [list(csv.reader(io.StringIO(batch.payload.decode(), newline=""))) for batch in batches]
    assert [row for part in read for row in part] == rows
    assert [len(part) for part in read] == [batch.records for batch in batches]


def test_empty_lines_inside_quotes_stay():
    assert cut(b'"a\n\nb"\n\nc\n', 100, quoted=True) == [Batch(b'"a\n\nb"\nc', 2, 0)]


def test_a_quote_that_is_not_closed_is_an_error():
    with pytest.raises(BrokenRecords, match=r"Record 2 at byte 4: a quote .* is not closed"):
        cut(b'a\nb\n"c\nd\n', 100, [4], "SingleRecord", quoted=True)


def test_a_quote_that_is_not_closed_is_named_when_the_record_is_too_large():
    with pytest.raises(RecordTooLarge, match="A quote in it is not closed"):
        cut(b'a\n"c' + b"\nd" * 20, 10, [20], quoted=True)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        ("MultiRecord", b"".join(b"%d,%d\n" % (n, n * n) for n in range(10_000))),
        ("MultiRecord", b"1,2,3,4\n" * 10_000 + b"\n" * 50_000),
        ("SingleRecord", b"1,2,3,4\n" * 100 + b"\n" * 20_000),
    ],
)
def test_memory_is_bounded_by_the_payload(strategy, text):
    cutter = make_cutter("Line", strategy, 1 << 18)
    tracemalloc.start()
    try:
        records = sum(batch.records for _ in range(10) for batch in cutter.feed(text))
        early, _ = tracemalloc.get_traced_memory()
        records += sum(batch.records for _ in range(10) for batch in cutter.feed(text))
        late, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    records += sum(batch.records for batch in cutter.end())
    assert records == 20 * len(text.split())
    assert late - early < 1 << 20
    assert peak < 8 << 20
