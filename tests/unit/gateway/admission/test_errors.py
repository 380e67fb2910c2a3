"""Errors of the runtime, in the form that SDKs read."""

import msgspec
import pytest

from sagehen.gateway.admission.errors import (
    ErrorFactory,
    RuntimeRefusal,
    answer_error,
    error_body,
    no_instance,
    unavailable,
)
from sagehen.http1.exchange import Exchange
from sagehen.wire.errors import AwsError
from support.exchanges import make_exchange

ERRORS = ErrorFactory("123456789012", "eu-central-1")


class Answers:
    date_line = b""
    draining = False

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def finished(self, exchange: Exchange) -> None:
        exchange.done = True


@pytest.mark.parametrize("status", [400, 404, 499])
def test_a_containers_own_status_makes_a_client_error(status):
    error = ERRORS.answered_with_error("price", "primary", status, b"no \xff")
    assert (error.code, error.status) == ("ModelError", 424)
    assert error.members["ErrorCode"] == "CLIENT_ERROR_FROM_MODEL"
    assert error.members["OriginalStatusCode"] == status
    assert error.members["OriginalMessage"] == "no \ufffd"
    assert error.message.startswith(f"Received client error ({status}) from primary")


def test_an_answer_that_was_cut_is_said_to_be():
    error = ERRORS.answered_with_error("price", "primary", 500, b"no", whole=False)
    assert "and could not load the entire response body" in error.message
    assert error.members["ErrorCode"] == "INTERNAL_FAILURE_FROM_MODEL"


def test_a_model_error_names_the_log_of_the_endpoint():
    error = ERRORS.no_answer("price", "primary", "it was killed")
    assert error.members["LogStreamArn"] == (
        "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/sagemaker/Endpoints/price"
    )
    assert "Received server error (0) from model" in error.message
    assert "Here: it was killed." in error.message


def test_members_are_in_the_body_and_the_code_is_in_a_header():
    channel = Answers()
    exchange = make_exchange(channel, b"id")
    exchange.is_whole = True
    answer_error(exchange, AwsError("SomeError", "Why.", 418, Member=1))
    head, _, body = channel.written.partition(b"\r\n\r\n")
    assert b"x-amzn-ErrorType: SomeError" in head
    assert b"Retry-After" not in head
    assert msgspec.json.decode(body) == {"Message": "Why.", "Member": 1}
    assert body == error_body(AwsError("SomeError", "Why.", 418, Member=1))


def test_what_may_be_tried_again_says_when():
    channel = Answers()
    answer_error(make_exchange(channel, b"id"), no_instance("price"))
    assert b"Retry-After: 1\r\n" in channel.written


def test_what_no_moment_mends_is_not_to_be_tried_in_a_moment():
    message = no_instance("price", "it needs 2 vCPUs, which no node has free now.").message
    assert "One waits to start: it needs 2 vCPUs, which no node has free now. Desc" in message
    assert "in a moment" not in message
    assert "Try again in a moment; DescribeEndpoint" in no_instance("price").message


@pytest.mark.parametrize("has_body", [True, False])
def test_a_refusal_keeps_the_connection_only_if_no_body_follows(has_body):
    exchange = make_exchange(Answers(), b"id")
    exchange.fields = {"content-length": "5"} if has_body else {}
    RuntimeRefusal(exchange, unavailable("Later.")).begin()
    assert exchange.closes == has_body
