"""Dates of condition headers."""

import pytest

from sagehen.services.s3.http.conditions import ConditionResult, judge
from sagehen.services.s3.storage.records import ObjectInfo

INFO = ObjectInfo(bucket="b", key="k", object_id="o", size=1, etag="e", modified_at=1_600_000_000.0)


@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
@pytest.mark.parametrize("year", ["x", "9" * 30])
def test_malformed_date_is_no_condition(name: str, year: str) -> None:
    headers = {name: f"Mon, 01 Jan {year} 00:00:00 GMT"}
    assert judge(headers, INFO, 1_700_000_000.0) == (ConditionResult.GO_ON, "")
