"""Dates of signatures."""

from sagehen.wire.signatures import claims
from sagehen.wire.signatures.claims import basic_time


def test_a_date_in_basic_form():
    assert basic_time("20261101T093000Z") == 1_793_525_400
    assert [basic_time(bad) for bad in ("20261301T093000Z", "2026-11-01", "", "Z")] == [None] * 4


def test_what_is_no_date_is_not_remembered():
    """Anybody may send it: nothing has been signed yet."""
    before = claims._basic_time.cache_info().currsize
    for number in range(10):
        assert basic_time(f"{number}" * 60_000) is None
    assert claims._basic_time.cache_info().currsize == before
