"""The cutter follows the job's fields; objects that are not split stay whole."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.records.cutting import Batch, RecordTooLarge, make_cutter


def test_an_object_that_is_not_split_is_one_batch():
    cutter = make_cutter("None", "MultiRecord", 10)
    assert cutter.feed(b"a\nb") == cutter.feed(b"\nc") == []
    assert cutter.end() == [Batch(b"a\nb\nc", 1, 0)]


def test_an_empty_object_has_no_batch():
    cutter = make_cutter("None", "SingleRecord", 10)
    assert cutter.feed(b"") == cutter.end() == []


def test_a_large_object_is_refused_as_soon_as_it_is_too_large():
    cutter = make_cutter("None", "MultiRecord", 10)
    cutter.feed(bytes(10))
    with pytest.raises(RecordTooLarge, match=r"10 bytes .* A SplitType cuts objects"):
        cutter.feed(b"a")


@pytest.mark.parametrize("split_type", ["None", "Line"])
def test_a_limit_of_zero_is_none(split_type):
    cutter = make_cutter(split_type, "MultiRecord", 0)
    lines = b"\n".join([b"x" * 1000] * 1000)
    assert cutter.feed(lines) == []
    assert [len(batch.payload) for batch in cutter.end()] == [len(lines)]


@pytest.mark.parametrize(
    ("split_type", "content_type"), [("None", "text/csv"), ("Line", "text/plain"), ("Line", None)]
)
def test_quoted_newlines_are_for_lines_of_csv(split_type, content_type):
    with pytest.raises(Invalid, match="SAGEHEN_TRANSFORM_CSV_QUOTED_NEWLINES is for objects of"):
        make_cutter(split_type, "MultiRecord", 10, content_type, csv_quoted_newlines=True)


def test_quoted_newlines_allow_parameters_of_the_content_type():
    cutter = make_cutter(
        "Line", "MultiRecord", 10, "text/CSV; charset=utf-8", csv_quoted_newlines=True
    )
    cutter.feed(b'"a\nb"\n')
    assert cutter.end() == [Batch(b'"a\nb"', 1, 0)]


def test_an_unknown_split_type_is_refused():
    with pytest.raises(Invalid, match='SplitType "Word" is not one of'):
        make_cutter("Word", "MultiRecord", 10)
