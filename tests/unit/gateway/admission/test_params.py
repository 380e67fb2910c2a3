"""Parameters of an invocation: how they are read, and what is cached."""

import pytest

from sagehen.gateway.admission.params import (
    INVOKE_STREAM,
    MAX_CACHED_PARAMS,
    ParameterCheck,
    ParamsReader,
    read_target,
)


@pytest.fixture
def reader():
    return ParamsReader(INVOKE_STREAM, ParameterCheck({}, lambda values: None))


def test_a_call_is_read_in_full_once(reader):
    headers = [(b"Content-Type", b"text/csv")]
    call = reader.read(headers, {"content-type": "text/csv"})
    assert reader.read(list(headers), {}) is call


def test_a_long_header_is_not_remembered_even_if_no_container_gets_it(reader):
    headers = [(b"Accept", b"a" * 60_000)]
    call = reader.read(headers, {})
    assert call.header_lines == b""
    assert reader.read(headers, {}) is not call


def test_so_many_are_remembered_and_no_more(reader):
    for number in range(MAX_CACHED_PARAMS + 1):
        reader.read([(b"Content-Type", b"%d" % number)], {})
    assert len(reader._cache) <= MAX_CACHED_PARAMS


def test_a_container_gets_each_header_once_as_it_was_checked(reader):
    """Of two it might take the last, of which nothing was known here."""
    headers = [
        (b"Content-Type", b"text/csv"),
        (b"X-Amzn-SageMaker-Custom-Attributes", b"a"),
        (b"content-type", b"application/x-other"),
    ]
    assert reader.read(headers, {}).header_lines == (
        b"Content-Type: text/csv,application/x-other\r\nX-Amzn-SageMaker-Custom-Attributes: a\r\n"
    )


def test_an_invocation_names_its_endpoint_and_what_is_asked_of_it():
    target = read_target(b"/endpoints/a%2Db/invocations?x=1")
    assert (target.endpoint, target.action) == ("a-b", "invocations")
    assert (target.path, target.query) == ("/endpoints/a%2Db/invocations", "x=1")


@pytest.mark.parametrize("target", [b"/", b"/bucket/endpoints/a/b", b"/endpoints", b"/endpoint/a"])
def test_other_paths_name_none(target):
    assert read_target(target).endpoint == ""


def test_a_long_one_is_read_as_well():
    name = b"x" * 5000
    assert read_target(b"/endpoints/" + name + b"/invocations").endpoint == name.decode()
