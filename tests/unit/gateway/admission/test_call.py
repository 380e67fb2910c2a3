"""What is remembered of the calls that were read."""

import pytest

from sagehen.gateway.admission.params import (
    CALLS_REMEMBERED,
    INVOKE_STREAM,
    CallReader,
    ParameterCheck,
)


@pytest.fixture
def reader():
    return CallReader(INVOKE_STREAM, ParameterCheck({}, lambda params: None))


def test_a_call_is_read_in_full_once(reader):
    headers = [(b"Content-Type", b"text/csv")]
    call = reader.read(headers, {"content-type": "text/csv"})
    assert reader.read(list(headers), {}) is call


def test_a_long_header_is_not_remembered_even_if_no_container_gets_it(reader):
    headers = [(b"Accept", b"a" * 60_000)]
    call = reader.read(headers, {})
    assert call.lines == b""
    assert reader.read(headers, {}) is not call


def test_so_many_are_remembered_and_no_more(reader):
    for number in range(CALLS_REMEMBERED + 1):
        reader.read([(b"Content-Type", b"%d" % number)], {})
    assert len(reader._known) <= CALLS_REMEMBERED


def test_a_container_gets_each_header_once_as_it_was_checked(reader):
    """Of two it might take the last, of which nothing was known here."""
    headers = [
        (b"Content-Type", b"text/csv"),
        (b"X-Amzn-SageMaker-Custom-Attributes", b"a"),
        (b"content-type", b"application/x-other"),
    ]
    assert reader.read(headers, {}).lines == (
        b"Content-Type: text/csv,application/x-other\r\nX-Amzn-SageMaker-Custom-Attributes: a\r\n"
    )
