"""Answers in the form of each protocol."""

import json
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest

from sagehen.wire.faults import AwsError
from sagehen.wire.serialize import serialize, serialize_error
from sagehen.wire.services import service
from support.oracle import client_model, error_as_client_reads, read_by_client

S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def answer(name, operation, result):
    return serialize(service(name).operation_model(operation), result, "the-id")


def test_what_is_not_set_is_left_out():
    variants = [{"VariantName": "v", "CurrentWeight": None}]
    result = {"EndpointName": "e", "FailureReason": None, "ProductionVariants": variants}
    body = json.loads(answer("sagemaker", "DescribeEndpoint", result).body)
    assert body == {"EndpointName": "e", "ProductionVariants": [{"VariantName": "v"}]}


@pytest.mark.parametrize("result", [None, {}])
def test_an_operation_without_output(result):
    response = answer("sagemaker", "DeleteModel", result)
    assert (response.status, response.body) == (200, b"{}")
    assert response.headers["x-amzn-RequestId"] == "the-id"


@pytest.mark.parametrize(
    "moment",
    [
        1_793_534_400.125,
        datetime(2026, 11, 1, 12, 0, 0, 125_000, tzinfo=UTC),
        datetime(2026, 11, 1, 12, 0, 0, 125_000),
        datetime(2026, 11, 1, 14, 0, 0, 125_000, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_dates_are_in_utc_whatever_they_come_in(moment):
    in_json = answer("sagemaker", "DescribeModel", {"CreationTime": moment})
    assert json.loads(in_json.body) == {"CreationTime": 1_793_534_400.125}
    in_xml = answer("iam", "GetRole", {"Role": {"CreateDate": moment}})
    assert b"<CreateDate>2026-11-01T12:00:00.125000Z</CreateDate>" in in_xml.body
    in_header = answer("s3", "HeadObject", {"LastModified": moment})
    assert in_header.headers["Last-Modified"] == "Sun, 01 Nov 2026 12:00:00 GMT"


def test_s3_documents_have_their_own_roots():
    response = answer("s3", "ListObjectsV2", {"Name": "b", "Contents": [{"Key": "a\rb\x01&<"}]})
    assert response.body.count(b"a&#xd;b&#x1;&amp;&lt;") == 1
    root = ElementTree.fromstring(response.body.replace(b"&#x1;", b""))
    assert root.tag == S3 + "ListBucketResult"
    assert root.findtext(f"{S3}Contents/{S3}Key") == "a\rb&<"
    assert response.headers["x-amz-request-id"] == "the-id"


def test_a_body_is_handed_on_as_it_is():
    async def stream():
        yield b"1"

    chunks = stream()
    response = answer("s3", "GetObject", {"Body": chunks, "ContentType": "text/csv"})
    assert response.body is chunks
    assert response.headers["Content-Type"] == "text/csv"


def test_a_modelled_error_of_the_runtime():
    members = {"OriginalStatusCode": 500, "OriginalMessage": "no", "LogStreamArn": "arn"}
    error = AwsError("ModelError", "It said no.", **members)
    response = serialize_error(service("sagemaker-runtime"), None, error, "the-id")
    assert response.status == 424
    assert response.headers["x-amzn-ErrorType"] == "ModelError"
    read = error_as_client_reads("sagemaker-runtime", response)
    assert read["Error"] == {"Code": "ModelError", "Message": "It said no."}
    assert {name: read[name] for name in ("Message", *members)} == {
        "Message": "It said no.",
        **members,
    }


@pytest.mark.parametrize(
    ("code", "key"), [("ResourceLimitExceeded", "Message"), ("ValidationException", "message")]
)
def test_errors_of_the_control_plane(code, key):
    response = serialize_error(service("sagemaker"), None, AwsError(code, "Why."), "the-id")
    assert response.status == 400
    assert json.loads(response.body) == {"__type": code, key: "Why."}
    assert response.headers["Content-Type"] == "application/x-amz-json-1.1"


def test_query_errors_say_whose_fault_it_was():
    for status, whose in ((None, "Sender"), (500, "Receiver")):
        error = AwsError("NoSuchEntity", "No role <r>.", status)
        response = serialize_error(service("iam"), None, error, "the-id")
        assert response.status == (status or 404)
        read = error_as_client_reads("iam", response)
        assert read["Error"] == {"Type": whose, "Code": "NoSuchEntity", "Message": "No role <r>."}
        assert read["ResponseMetadata"]["RequestId"] == "the-id"


def test_s3_errors_have_further_elements():
    error = AwsError("NoSuchKey", "No.", 404, Key="a\x00\r<b>")
    response = serialize_error(service("s3"), None, error, "the-id")
    read = error_as_client_reads("s3", response)
    assert response.body.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<Error>')
    assert read["Error"] == {"Code": "NoSuchKey", "Message": "No.", "Key": "a\ufffd\r<b>"}


@pytest.mark.parametrize("name", ["sagemaker", "sagemaker-runtime", "iam"])
def test_every_modelled_error_is_known_again(name):
    model = client_model(name)
    for shape in model.error_shapes:
        response = serialize_error(
            service(name), None, AwsError(shape.error_code, "Why."), "the-id"
        )
        read = error_as_client_reads(name, response)
        assert model.shape_for_error_code(read["Error"]["Code"]).name == shape.name
        assert response.status == shape.metadata.get("error", {}).get("httpStatusCode", 400)
        assert read["Error"]["Message"] == "Why."
        assert "Message" not in shape.members or read["Message"] == "Why."


def test_an_answer_that_botocore_reads():
    result = {"Account": "1", "UserId": "u", "Arn": "a"}
    assert read_by_client(
        "sts", "GetCallerIdentity", answer("sts", "GetCallerIdentity", result)
    ) == (result)
