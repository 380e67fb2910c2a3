"""What gateways tell each other, as bytes and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.gateway.peers.messages import (
    Failure,
    PeerRequestHead,
    PeerRoute,
    decode_failure,
    decode_head,
    decode_route,
    encode_failure,
    encode_head,
)
from sagehen.link.frames import INLINE_BYTES, LinkError

models = st.none() | st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=50)
numbers = st.integers(0, 2**32 - 1)


@given(numbers, numbers, st.integers(0, 10**9), st.sampled_from(["", "i-00ff"]), models)
def test_a_head_comes_across(route, reservation, age, instance, model):
    head = encode_head(route, reservation, age / 1e6, instance, model)
    assert b"\n" not in head
    read = decode_head(head)
    assert read == PeerRequestHead(route, reservation, read.age_microseconds, instance, model)
    assert abs(read.age_microseconds - age) <= 1


def test_an_age_is_never_below_zero():
    assert decode_head(encode_head(1, 0, -0.1, "", None)).age_microseconds == 0


@pytest.mark.parametrize("head", [b"", b"1 2 3", b"a 0 0 - ", b"1 0 0 \xff =m", b"1 0 0 - =\xff"])
def test_what_is_no_head(head):
    with pytest.raises(LinkError, match="head of a request"):
        decode_head(head)


def test_a_failure_comes_across_as_the_same_error():
    failure = Failure(model_status=418, code="ModelError", message="No.", members={"A": 1})
    read = decode_failure(encode_failure(failure))
    assert read == failure
    assert (read.error.code, read.error.message, read.error.members) == (
        "ModelError",
        "No.",
        {"A": 1},
    )


def test_a_failure_of_many_words_is_cut_to_fit():
    members = {"OriginalMessage": "\0" * 16_384, "OriginalStatusCode": 500}
    body = encode_failure(Failure(code="ModelError", message="m" * 90_000, members=members))
    assert len(body) <= INLINE_BYTES
    assert decode_failure(body).members["OriginalStatusCode"] == 500


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"endpoint": 1, "variant": "a"}', b'{"endpoint": "\xff"}']
)
def test_what_is_no_route(body):
    with pytest.raises(LinkError, match="route"):
        decode_route(body)


def test_a_route_with_defaults():
    assert decode_route(b'{"endpoint": "e", "variant": "v"}') == PeerRoute("e", "v")
