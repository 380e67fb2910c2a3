"""Parquet is converted where its lines would be cut; all else stays what the job says."""

import pytest

from sagehen.services.sagemaker.transform.object_formats import ObjectFormat, object_format
from support.transform_runs import make_spec


def format_of(key: str, **fields) -> ObjectFormat:
    return object_format(make_spec(**fields), key)


@pytest.mark.parametrize("key", ["in/a.parquet", "in/a"])
def test_objects_of_the_type_of_parquet_are_converted(key):
    assert format_of(key, content_type="application/x-parquet") == ObjectFormat(
        content_type="text/csv", quoted_newlines=True, parquet_as="text/csv"
    )


def test_the_job_chooses_what_containers_get():
    options = {"PARQUET_AS": "application/jsonlines"}
    assert format_of("a", content_type="application/x-parquet", options=options) == ObjectFormat(
        content_type="application/jsonlines",
        quoted_newlines=False,
        parquet_as="application/jsonlines",
    )


@pytest.mark.parametrize(
    ("content_type", "parquet_as"),
    [
        ("text/csv; charset=utf-8", "text/csv"),
        ("application/jsonlines", "application/jsonlines"),
        ("application/json", "application/jsonlines"),
    ],
)
def test_parquet_beside_text_becomes_such_text(content_type, parquet_as):
    found = format_of("in/a.parquet", content_type=content_type)
    assert (found.content_type, found.parquet_as) == (content_type, parquet_as)
    assert format_of("in/a.csv", content_type=content_type).parquet_as is None


def test_containers_that_read_parquet_get_it():
    found = format_of("a.parquet", content_type="application/x-parquet", split_type="None")
    assert found == ObjectFormat(
        content_type="application/x-parquet", quoted_newlines=False, parquet_as=None
    )


@pytest.mark.parametrize("content_type", [None, "image/png"])
def test_other_objects_stay_as_they_are(content_type):
    assert format_of("in/a.parquet", content_type=content_type).parquet_as is None


def test_quoted_newlines_are_an_option():
    options = {"CSV_QUOTED_NEWLINES": "true"}
    assert format_of("a.csv", content_type="text/csv", options=options).quoted_newlines
    assert not format_of("a.csv", content_type="text/csv").quoted_newlines
