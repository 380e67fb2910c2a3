"""Each operation in both directions: what botocore sends we read, what we answer botocore reads."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sagehen.wire.faults import AwsError
from sagehen.wire.match import match
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize, serialize_error
from sagehen.wire.services import service
from support.oracle import (
    OPERATIONS,
    client_model,
    error_as_client_reads,
    read_by_client,
    sent_by_client,
)
from support.shapes import structures, without_empty

few = settings(
    max_examples=5,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SIGNED_AS = {"sagemaker-runtime": "sagemaker"}
EVENT_STREAMS = [("sagemaker-runtime", "InvokeEndpointWithResponseStream")]
UNWRAPPED = [("s3", "GetBucketLocation")]


@pytest.mark.parametrize(("name", "operation"), OPERATIONS)
def test_requests_are_read_as_they_were_meant(name, operation):
    shape = client_model(name).operation_model(operation).input_shape
    protocol = client_model(name).protocol

    @few
    @given(st.just({}) if shape is None else structures(shape, protocol))
    def check(params):
        request = sent_by_client(name, operation, params)
        model, found = match(request, SIGNED_AS.get(name, name))
        assert (model.service_name, found.name) == (name, operation)
        got = parse(request, found)
        if protocol in ("query", "rest-xml"):
            got, params = without_empty(got), without_empty(params)
        if "ContentLength" not in params:
            got.pop("ContentLength", None)  # The client adds that header by itself.
        assert got == params

    check()


@pytest.mark.parametrize(
    ("name", "operation"), [one for one in OPERATIONS if one not in EVENT_STREAMS + UNWRAPPED]
)
def test_answers_are_read_as_they_were_meant(name, operation):
    shape = client_model(name).operation_model(operation).output_shape
    protocol = client_model(name).protocol

    @few
    @given(st.just({}) if shape is None else structures(shape, protocol))
    def check(result):
        response = serialize(service(name).operation_model(operation), result, "the-id")
        got = read_by_client(name, operation, response)
        if client_model(name).operation_model(operation).has_streaming_output:
            result.setdefault(shape.serialization["payload"], b"")
        if protocol in ("query", "rest-xml"):
            got, result = without_empty(got), without_empty(result)
        assert got == result

    check()


@pytest.mark.parametrize("name", ["sagemaker", "sagemaker-runtime", "s3", "sts", "iam"])
@settings(few, max_examples=30)
@given(message=st.text(max_size=30), status=st.sampled_from([None, 400, 403, 424, 503]))
def test_errors_are_read_as_they_were_meant(name, message, status):
    response = serialize_error(service(name), None, AwsError("SomeCode", message, status), "the-id")
    read = error_as_client_reads(name, response)
    assert response.status == (status or 400)
    assert read["Error"]["Code"] == "SomeCode"
    if message.isprintable():
        assert (read["Error"]["Message"] or "") == message
    assert read["ResponseMetadata"]["RequestId"] == "the-id"
