"""Requests that botocore would not send: they are refused with what is wrong, and where."""

import contextlib
import json
from datetime import UTC, datetime

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parse import parse
from sagehen.wire.services import CBOR, service
from sagehen.wire.values import MalformedValue, timestamp

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


def test_null_is_the_same_as_absent():
    body = b'{"EndpointConfigName": "c", "KmsKeyId": null, "NoSuchMember": null, "__type": "x"}'
    assert parsed("sagemaker", "CreateEndpointConfig", body) == {"EndpointConfigName": "c"}


@pytest.mark.parametrize(
    ("name", "operation", "params", "member", "code"),
    [
        ("sagemaker", "CreateModel", {"New": []}, "New", "ValidationException"),
        (
            "sagemaker",
            "CreateEndpointConfig",
            {"ProductionVariants": [{"VariantName": "v"}, {"VariantName": "w", "New": {}}]},
            "ProductionVariants.2.New",
            "ValidationException",
        ),
        ("logs", "GetLogEvents", {"new": 1}, "new", "InvalidParameterException"),
        ("sqs", "ListQueues", {"New": 1}, "New", "ValidationError"),
    ],
)
def test_unknown_members_are_refused_by_name(name, operation, params, member, code):
    error = refused(name, operation, json.dumps(params).encode())
    assert error.code == code
    assert f"does not know the member '{member}' of {operation}" in error.message


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
    with pytest.raises(MalformedValue):
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


def in_cbor(operation, body):
    made = Request("POST", "/", "", {}, body)
    return parse(made, service("cloudwatch", CBOR).operation_model(operation))


def test_cbor_is_read():
    noon = cbor2.CBORTag(1, NOON.timestamp())
    sent = {"Namespace": "n", "StartTime": noon, "Period": 60, "Unit": None}
    read = in_cbor("GetMetricStatistics", cbor2.dumps(sent))
    assert read == {"Namespace": "n", "StartTime": NOON, "Period": 60}
    untagged = cbor2.dumps({"StartTime": NOON.timestamp()})
    assert in_cbor("GetMetricStatistics", untagged) == {"StartTime": NOON}
    assert in_cbor("ListMetrics", b"") == {}
    with pytest.raises(AwsError, match=r"'MetricData\.1\.New'"):
        in_cbor("PutMetricData", cbor2.dumps({"MetricData": [{"New": 1}]}))
    whole = in_cbor("PutMetricData", cbor2.dumps({"MetricData": [{"Value": 3, "Values": [1.5]}]}))
    assert whole == {"MetricData": [{"Value": 3.0, "Values": [1.5]}]}


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x81" * 100_000 + b"\x01",
        b"\xc1\xfb\x7f\xf0\0\0\0\0\0\0",
        cbor2.dumps([1]),
        cbor2.dumps("text"),
        cbor2.dumps({1: 2, (1, 2): 3}),
        cbor2.dumps({"Namespace": 1}),
        cbor2.dumps({"Namespace": b"n"}),
        cbor2.dumps({"Period": "60"}),
        cbor2.dumps({"Period": True}),
        cbor2.dumps({"Period": 60.5}),
        cbor2.dumps({"Period": 2**80}),
        cbor2.dumps({"StartTime": "2026-11-01T12:00:00Z"}),
        cbor2.dumps({"StartTime": 1e300}),
        cbor2.dumps({"Dimensions": {"Name": "a"}}),
        cbor2.dumps({"Dimensions": [None]}),
        cbor2.dumps({"Period": 10**5000}),
        cbor2.dumps({"StartTime": 10**5000}),
        cbor2.dumps({"StartTime": cbor2.CBORTag(0, "0001-01-01T00:00:00+14:00")}),
        bytes.fromhex("a16a44696d656e73696f6e73d81c81d81d00"),
    ],
)
def test_what_is_no_cbor_of_the_operation(body):
    with pytest.raises(AwsError) as caught:
        in_cbor("GetMetricStatistics", body)
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("82d81c8101d81d00", id="shared values"),
        pytest.param("d90100826361626363616263d81900", id="shared strings"),
        pytest.param("d8236161", id="a regular expression"),
        pytest.param("d8246161", id="a mail"),
        pytest.param("d81e820102", id="a fraction"),
    ],
)
def test_cbor_has_no_tags_that_make_much_of_little(value):
    """A shared list would be read once for each reference: hours for a body of 1 MB."""
    body = (
        b"\xa2" + cbor2.dumps("Unknown") + bytes.fromhex(value) + cbor2.dumps("Namespace") + b"an"
    )
    with pytest.raises(AwsError) as caught:
        in_cbor("GetMetricStatistics", body)
    assert caught.value.code == "SerializationException"


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.binary(max_size=60))
def test_nothing_but_an_aws_error_comes_of_junk_in_cbor(body):
    with contextlib.suppress(AwsError):
        assert isinstance(in_cbor("GetMetricData", body), dict)


def in_query(operation, body, **request):
    made = Request(
        "POST", request.get("path", "/"), "", {"host": "h:9000", **request.get("headers", {})}, body
    )
    return parse(made, service("sqs", "query").operation_model(operation))


def test_the_forms_that_the_documentation_of_sqs_shows():
    read = in_query(
        "SendMessage",
        b"Action=SendMessage&MessageBody=hello&Version=2012-11-05&QueueUrl=http://h/0/q"
        b"&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String"
        b"&MessageAttribute.1.Value.StringValue=x",
    )
    assert read == {
        "QueueUrl": "http://h/0/q",
        "MessageBody": "hello",
        "MessageAttributes": {"a": {"StringValue": "x", "DataType": "String"}},
    }
    batch = in_query(
        "SendMessageBatch",
        b"Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=one"
        b"&SendMessageBatchRequestEntry.1.MessageBody=b&QueueUrl=u",
    )
    assert batch == {"QueueUrl": "u", "Entries": [{"Id": "one", "MessageBody": "b"}]}
    made = in_query(
        "CreateQueue",
        b"Action=CreateQueue&QueueName=q&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=40"
        b"&Tag.1.Key=k&Tag.1.Value=v",
    )
    assert made == {
        "QueueName": "q",
        "Attributes": {"VisibilityTimeout": "40"},
        "tags": {"k": "v"},
    }


def test_the_queue_may_be_named_by_the_path_alone():
    body = b"Action=ReceiveMessage&MaxNumberOfMessages=5&AttributeName.1=All"
    read = in_query("ReceiveMessage", body, path="/000000000000/my%2Dqueue")
    assert read == {
        "QueueUrl": "http://h:9000/000000000000/my-queue",
        "MaxNumberOfMessages": 5,
        "AttributeNames": ["All"],
    }
    named = in_query("ReceiveMessage", body + b"&QueueUrl=u", path="/000000000000/q")
    assert named["QueueUrl"] == "u"


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
