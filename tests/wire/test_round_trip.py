"""Each operation in both directions: what botocore sends we read, what we answer botocore reads."""

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sagehen.wire.errors import AwsError
from sagehen.wire.match import match
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize, serialize_error
from sagehen.wire.services import PROTOCOLS, service
from support.oracle import (
    OF_SEVERAL_PROTOCOLS,
    OPERATIONS,
    client_model,
    error_as_client_reads,
    read_by_client,
    sent_by_client,
)
from support.shapes import structures, without_empty

few = settings(
    max_examples=3,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
always_the_same = seed(7)
"""Not `derandomize`: it reads a test's source anew for each operation."""
SIGNED_AS = {"sagemaker-runtime": "sagemaker", "cloudwatch": "monitoring"}
UNWRAPPED = [("s3", "GetBucketLocation", None)]
AT_OTHER_HOSTS = [("s3", "ListDirectoryBuckets", None), ("s3", "WriteGetObjectResponse", None)]
"""operations of S3 that have a binding of their own only by the host they are sent to"""
EVERY = [(*one, None) for one in OPERATIONS] + OF_SEVERAL_PROTOCOLS
EVENT_STREAMS = [
    (name, operation, spoken)
    for name, operation, spoken in EVERY
    if client_model(name, spoken).operation_model(operation).has_event_stream_output
]
MOST_AT_ONCE = 40
"""Operations of one test: a test takes as long to be run as an operation to be checked."""


def batches(left_out: list[tuple[str, str, str | None]]) -> list[object]:
    """Operations of one service and protocol, but for those that are left out."""
    every, made = [one for one in EVERY if one not in left_out], []
    for (name, spoken), found in groupby(every, key=lambda one: (one[0], one[2])):
        operations = [operation for _, operation, _ in found]
        for start in range(0, len(operations), MOST_AT_ONCE):
            batch = operations[start : start + MOST_AT_ONCE]
            made.append(pytest.param(name, batch, spoken, id=f"{name}-{spoken}-{batch[0]}"))
    return made


def check_each(check: Callable[..., None], name: str, operations: list[str], spoken) -> None:
    for operation in operations:
        try:
            check(name, operation, spoken)
        except BaseException as error:
            error.add_note(f"The operation is {operation}.")
            raise


@pytest.mark.parametrize(("name", "operations", "spoken"), batches(AT_OTHER_HOSTS))
def test_requests_are_read_as_they_were_meant(name, operations, spoken):
    check_each(check_request, name, operations, spoken)


def check_request(name: str, operation: str, spoken: str | None) -> None:
    shape = client_model(name, spoken).operation_model(operation).input_shape
    protocol = client_model(name, spoken).protocol

    @always_the_same
    @few
    @given(st.just({}) if shape is None else structures(shape, protocol))
    def check(params):
        request = sent_by_client(name, operation, params, spoken)
        model, found = match(request, SIGNED_AS.get(name, name))
        assert (model.service_name, found.name) == (name, operation)
        assert model.protocol == protocol
        got = parse(request, found)
        if protocol in ("query", "rest-xml"):
            got, params = without_empty(got), without_empty(params)
        if "ContentLength" not in params:
            got.pop("ContentLength", None)  # The client adds that header by itself.
        assert got == params

    check()


@pytest.mark.parametrize(("name", "operations", "spoken"), batches(EVENT_STREAMS + UNWRAPPED))
def test_answers_are_read_as_they_were_meant(name, operations, spoken):
    check_each(check_answer, name, operations, spoken)


def check_answer(name: str, operation: str, spoken: str | None) -> None:
    model = client_model(name, spoken).operation_model(operation)
    shape = model.output_shape
    protocol = client_model(name, spoken).protocol

    @always_the_same
    @few
    @given(st.just({}) if shape is None else structures(shape, protocol))
    def check(result):
        response = serialize(service(name, spoken).operation_model(operation), result, "the-id")
        got = read_by_client(name, operation, response, spoken)
        payload = shape.serialization.get("payload") if shape else None
        if payload and shape.members[payload].type_name in ("blob", "string"):
            result.setdefault(payload, b"" if model.has_streaming_output else "")
        if protocol in ("query", "rest-xml"):
            got, result = without_empty(got), without_empty(result)
        assert got == result

    check()


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("sagemaker", None),
        ("sagemaker-runtime", None),
        ("s3", None),
        ("sts", None),
        ("iam", None),
        ("sns", None),
        *((name, spoken) for name, every in PROTOCOLS.items() for spoken in every),
    ],
)
@always_the_same
@settings(few, max_examples=30)
@given(message=st.text(max_size=30), status=st.sampled_from([None, 400, 403, 424, 503]))
def test_errors_are_read_as_they_were_meant(name, spoken, message, status):
    error = AwsError("SomeCode", message, status)
    response = serialize_error(service(name, spoken), None, error, "the-id")
    read = error_as_client_reads(name, response, spoken)
    assert response.status == (status or 400)
    assert read["Error"]["Code"] == "SomeCode"
    if message.isprintable():
        assert (read["Error"]["Message"] or "") == message
    assert read["ResponseMetadata"]["RequestId"] == "the-id"
