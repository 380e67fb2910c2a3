"""Answers in the form of each protocol."""

import json
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import cbor2
import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.serialize import serialize, serialize_error
from sagehen.wire.services import CBOR, PROTOCOLS, service
from support.oracle import client_model, code_of_class, error_as_client_reads, read_by_client

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


@pytest.mark.parametrize("code", ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"])
def test_errors_of_a_service_that_spoke_query_first_are_told_in_both_spellings(code):
    in_json = serialize_error(service("sqs"), None, AwsError(code, "No."), "the-id")
    assert json.loads(in_json.body) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "No.",
    }
    told = "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert in_json.headers["x-amzn-query-error"] == told
    assert in_json.headers["Content-Type"] == "application/x-amz-json-1.0"
    read = error_as_client_reads("sqs", in_json)
    assert read["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert read["Error"]["QueryErrorCode"] == "QueueDoesNotExist"
    in_query = serialize_error(service("sqs", "query"), None, AwsError(code, "No."), "the-id")
    assert b"<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in in_query.body
    assert b'xmlns="http://queue.amazonaws.com/doc/2012-11-05/"' in in_query.body
    assert "x-amzn-query-error" not in in_query.headers


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("QueueDoesNotExist", "The specified queue does not exist for this wsdl version."),
        ("ReceiptHandleIsInvalid", "The input receipt handle is invalid."),
        ("QueueNameExists", "No."),
    ],
)
def test_sqs_words_some_errors_otherwise_in_query(code, words):
    error = AwsError(code, "No.", 400)
    response = serialize_error(service("sqs", "query"), None, error, "the-id")
    assert f"<Message>{words}</Message>".encode() in response.body
    assert b'"No."' in serialize_error(service("sqs"), None, error, "the-id").body


def test_an_error_in_cbor():
    error = AwsError("InvalidParameterValue", "Not so.", 400)
    response = serialize_error(service("cloudwatch", CBOR), None, error, "the-id")
    assert cbor2.loads(response.body) == {
        "__type": "com.amazonaws.cloudwatch#InvalidParameterValueException",
        "message": "Not so.",
    }
    assert response.headers["Content-Type"] == "application/cbor"
    assert response.headers["smithy-protocol"] == "rpc-v2-cbor"
    assert response.headers["x-amzn-query-error"] == "InvalidParameterValue;Sender"
    failure = serialize_error(service("cloudwatch", CBOR), None, AwsError("Broken", "", 500), "id")
    assert failure.headers["x-amzn-query-error"] == "Broken;Receiver"


def test_an_answer_in_cbor():
    moment = datetime(2026, 11, 1, 12, 0, 0, 125_000, tzinfo=UTC)
    result = {"Label": "m", "Datapoints": [{"Timestamp": moment, "Sum": 2, "Unit": None}]}
    operation = service("cloudwatch", CBOR).operation_model("GetMetricStatistics")
    response = serialize(operation, result, "the-id")
    assert cbor2.loads(response.body) == {
        "Label": "m",
        "Datapoints": [{"Timestamp": moment, "Sum": 2.0}],
    }
    assert response.headers["smithy-protocol"] == "rpc-v2-cbor"
    nothing = service("cloudwatch", CBOR).operation_model("PutMetricData")
    empty = serialize(nothing, {}, "the-id")
    assert (empty.status, empty.body, "Content-Type" in empty.headers) == (200, b"", False)


def test_s3_errors_have_further_elements():
    error = AwsError("NoSuchKey", "No.", 404, Key="a\x00\r<b>")
    response = serialize_error(service("s3"), None, error, "the-id")
    read = error_as_client_reads("s3", response)
    assert response.body.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<Error>')
    assert read["Error"] == {"Code": "NoSuchKey", "Message": "No.", "Key": "a\ufffd\r<b>"}


def error_code(name, shape):
    """In SQS, what it was before JSON."""
    ours = {one.name: one.error_code for one in service(name).error_shapes}
    return ours[shape.name]


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("sagemaker", None),
        ("sagemaker-runtime", None),
        ("iam", None),
        ("sns", None),
        *((name, spoken) for name, every in PROTOCOLS.items() for spoken in every),
    ],
)
def test_every_modelled_error_is_known_again(name, spoken):
    model = client_model(name, spoken)
    for shape in model.error_shapes:
        error = AwsError(shape.error_code, "Why.")
        response = serialize_error(service(name, spoken), None, error, "the-id")
        read = error_as_client_reads(name, response, spoken)
        assert read["Error"]["Code"] == error_code(name, shape)
        known_by = code_of_class(name, read["Error"])
        assert model.shape_for_error_code(known_by).error_code == shape.error_code
        if name != "sqs":  # Today's model has lost its statuses.
            assert response.status == shape.metadata.get("error", {}).get("httpStatusCode", 400)
        if (name, spoken) != ("sqs", "query"):  # It has words of its own for two of them.
            assert read["Error"]["Message"] == "Why."
        assert "Message" not in shape.members or read["Message"] == "Why."


def test_an_answer_that_botocore_reads():
    result = {"Account": "1", "UserId": "u", "Arn": "a"}
    assert read_by_client(
        "sts", "GetCallerIdentity", answer("sts", "GetCallerIdentity", result)
    ) == (result)
