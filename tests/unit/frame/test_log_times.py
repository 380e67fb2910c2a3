"""The header of the index of print times."""

from pathlib import Path

import pytest

from sagehen.frame.log_times import HEADER, Header, put_aside, read_header, times_path


def test_a_header_is_read_as_it_was_written() -> None:
    header = Header(inode=7, base=2**40, created_ms=1_700_000_000_000)
    assert read_header(header.pack() + b"entries") == header


@pytest.mark.parametrize("data", [b"", Header(1, 2, 3).pack()[:-1], bytes(HEADER.size)])
def test_foreign_and_partial_headers_are_none(data: bytes) -> None:
    assert read_header(data) is None


def test_the_index_follows_its_log_through_a_rotation() -> None:
    log = Path("/logs/primary.log")
    assert put_aside(log) == Path("/logs/primary.log.1")
    assert times_path(put_aside(log)) == Path("/logs/primary.log.1.times")
