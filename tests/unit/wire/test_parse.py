"""Requests that botocore would not send: they are refused with what is wrong, and where."""

import contextlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parse import parse
from sagehen.wire.services import service
from sagehen.wire.values import Malformed, timestamp

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def parsed(name, operation, body=b"", **request):
    made = Request(
        request.get("method", "POST"),
        request.get("path", "/"),
        request.get("query", ""),
        request.get("headers", {}),
        body,
    )
    return parse(made, service(name).operation_model(operation))


def refused(*args, **request) -> AwsError:
    with pytest.raises(AwsError) as caught:
        parsed(*args, **request)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "body", [b'{"MaxResults": ', b"[]", b'"x"', b"null", b"\xff", b"[" * 100_000, b"{}x", b"1" * 99]
)
def test_bodies_that_are_not_json_objects(body):
    assert refused("sagemaker", "ListModels", body).code == "SerializationException"


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"EndpointConfigName": 7}, "EndpointConfigName"),
        ({"ProductionVariants": {}}, "ProductionVariants"),
        ({"ProductionVariants": "ab"}, "ProductionVariants"),
        ({"ProductionVariants": [[]]}, "ProductionVariants.1"),
        ({"ProductionVariants": [{}, None]}, "ProductionVariants.2"),
        (
            {"ProductionVariants": [{"InitialInstanceCount": "1"}]},
            "ProductionVariants.1.InitialInstanceCount",
        ),
        (
            {"ProductionVariants": [{"InitialInstanceCount": 1.5}]},
            "ProductionVariants.1.InitialInstanceCount",
        ),
        (
            {"ProductionVariants": [{"InitialInstanceCount": 2**31}]},
            "ProductionVariants.1.InitialInstanceCount",
        ),
        (
            {"ProductionVariants": [{"InitialInstanceCount": True}]},
            "ProductionVariants.1.InitialInstanceCount",
        ),
        ({"EnableNetworkIsolation": "true"}, "EnableNetworkIsolation"),
        ({"EnableNetworkIsolation": 1}, "EnableNetworkIsolation"),
    ],
)
def test_values_of_another_type_are_refused_with_their_place(params, where):
    error = refused("sagemaker", "CreateEndpointConfig", json.dumps(params).encode())
    assert error.code == "SerializationException"
    assert f"cannot be read at '{where}': " in error.message


def test_null_is_as_good_as_nothing_and_strangers_are_ignored():
    body = b'{"EndpointConfigName": "c", "KmsKeyId": null, "NoSuchMember": 1}'
    assert parsed("sagemaker", "CreateEndpointConfig", body) == {"EndpointConfigName": "c"}


def test_no_body_is_no_parameters():
    assert parsed("sagemaker", "ListModels") == {}


@pytest.mark.parametrize(
    "sent", [NOON.timestamp(), "2026-11-01T12:00:00Z", "2026-11-01T13:00:00+01:00"]
)
def test_dates_come_in_several_forms(sent):
    body = json.dumps({"CreationTimeAfter": sent}).encode()
    assert parsed("sagemaker", "ListModels", body) == {"CreationTimeAfter": NOON}


@pytest.mark.parametrize("sent", [True, "tomorrow", 1e300, float("nan"), "inf", [], None])
def test_what_is_no_date(sent):
    with pytest.raises(Malformed):
        timestamp(sent)


def test_http_dates_are_dates():
    assert timestamp("Sun, 01 Nov 2026 12:00:00 GMT") == NOON


def test_an_empty_body_is_a_parameter_of_invoke_endpoint():
    got = parsed("sagemaker-runtime", "InvokeEndpoint", path="/endpoints/a%2Fb%20c/invocations")
    assert got == {"EndpointName": "a/b c", "Body": b""}


@pytest.mark.parametrize(
    "body",
    [
        b"<Delete><Object>",
        b"junk",
        b"<Delete><Object><Key>a</Key></Object><Quiet>maybe</Quiet></Delete>",
        b"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        b"<Delete><Object><Key>a</Key><Size>many</Size></Object></Delete>",
    ],
)
def test_xml_that_cannot_be_read(body):
    assert refused("s3", "DeleteObjects", body, path="/b", query="delete").code == "MalformedXML"


def test_xml_entities_do_not_blow_up():
    entities = b'<!ENTITY a0 "aaaaaaaaaa">' + b"".join(
        b'<!ENTITY a%d "%s">' % (i, b"&a%d;" % (i - 1) * 10) for i in range(1, 12)
    )
    body = b"<!DOCTYPE x [" + entities + b"]><Delete><Object><Key>&a11;</Key></Object></Delete>"
    assert refused("s3", "DeleteObjects", body, path="/b", query="delete").code == "MalformedXML"


def test_numbers_in_headers_are_checked():
    headers = {"content-length": "many"}
    assert refused("s3", "PutObject", path="/b/k", method="PUT", headers=headers)


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["ProductionVariants", "Tags", "DataCaptureConfig", "KmsKeyId", "Key"]
                ),
                inner,
                max_size=3,
            )
        ),
    )
)
def test_nothing_but_an_aws_error_comes_of_junk(junk):
    with contextlib.suppress(AwsError):
        got = parsed("sagemaker", "CreateEndpointConfig", json.dumps(junk).encode())
        assert isinstance(got, dict)
