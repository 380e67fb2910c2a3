"""Which operation of which service is asked for, on the one port."""

import re

import botocore.session
import pytest

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request
from sagehen.wire.match import likely_model, match, not_implemented


def matched(service, method="POST", path="/", query="", headers=None, body=b""):
    model, operation = match(Request(method, path, query, headers or {}, body), service)
    return f"{model.service_name}.{operation.name}"


def refused(service, **request) -> AwsError:
    with pytest.raises(AwsError) as caught:
        matched(service, **request)
    return caught.value


def test_a_target_names_the_operation():
    headers = {"x-amz-target": "SageMaker.ListModels"}
    assert matched("sagemaker", headers=headers) == "sagemaker.ListModels"


def test_the_runtime_signs_as_sagemaker_and_has_paths():
    path = "/endpoints/a%2Fb/invocations"
    assert matched("sagemaker", path=path) == "sagemaker-runtime.InvokeEndpoint"


SESSION = botocore.session.get_session()
SIGN_AS_SAGEMAKER = [
    name
    for name in SESSION.get_available_services()
    if "sagemaker" in name and SESSION.get_service_model(name).signing_name == "sagemaker"
]


@pytest.mark.parametrize(
    "name", [one for one in SIGN_AS_SAGEMAKER if one not in ("sagemaker", "sagemaker-runtime")]
)
def test_other_services_that_sign_as_sagemaker_are_refused_by_name(name):
    model = SESSION.get_service_model(name)
    for operation in model.operation_names:
        http = model.operation_model(operation).http
        path = re.sub(r"{\w+}", "any", http["requestUri"].partition("?")[0])
        error = refused("sagemaker", method=http["method"], path=path)
        assert (error.code, error.status) == ("UnsupportedOperation", 400)
        assert f'The service "{name}" is not served by Sagehen.' in error.message


@pytest.mark.parametrize("request_", [{"body": b"Action=GetRole&Version=2010-05-08"}])
def test_an_action_names_the_operation(request_):
    assert matched("iam", **request_) == "iam.GetRole"
    in_query = {"query": "Action=GetRole", "method": "GET"}
    assert matched("iam", **in_query) == "iam.GetRole"


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "operation"),
    [
        ("GET", "/", "", {}, "ListBuckets"),
        ("GET", "/b", "", {}, "ListObjects"),
        ("GET", "/b/", "", {}, "ListObjects"),
        ("GET", "/b", "list-type=2&prefix=a", {}, "ListObjectsV2"),
        ("GET", "/b", "location", {}, "GetBucketLocation"),
        ("GET", "/b", "lifecycle", {}, "GetBucketLifecycleConfiguration"),
        ("GET", "/b/k/l", "", {}, "GetObject"),
        ("GET", "/b/k", "x-id=GetObject", {}, "GetObject"),
        ("GET", "/b/k/", "uploadId=1", {}, "ListParts"),
        ("PUT", "/b/k", "", {}, "PutObject"),
        ("PUT", "/b/k", "", {"x-amz-copy-source": "a"}, "CopyObject"),
        ("PUT", "/b/k", "partNumber=1&uploadId=2", {}, "UploadPart"),
        ("POST", "/b", "delete", {}, "DeleteObjects"),
        ("POST", "/b/k", "uploads", {}, "CreateMultipartUpload"),
        ("DELETE", "/b/k", "", {}, "DeleteObject"),
        ("DELETE", "/b/k", "uploadId=3", {}, "AbortMultipartUpload"),
    ],
)
def test_s3_is_told_by_path_query_and_headers(method, path, query, headers, operation):
    assert matched("s3", method, path, query, headers) == f"s3.{operation}"


@pytest.mark.parametrize("target", ["SageMaker.MakeCoffee", "Logs_20140328.GetLogEvents", "x"])
def test_an_unknown_target_is_named(target):
    error = refused("sagemaker", headers={"x-amz-target": target})
    assert (error.code, error.status) == ("UnknownOperationException", 404)
    assert target in error.message


def test_no_target_at_all():
    assert "no X-Amz-Target" in refused("sagemaker").message


def test_an_unknown_action_is_named():
    error = refused("iam", body=b"Action=MakeCoffee&Version=2010-05-08")
    assert (error.code, error.status) == ("InvalidAction", 400)
    assert error.message == "Could not find operation MakeCoffee for version 2010-05-08"
    assert refused("sts").code == "MissingAction"


def test_an_unknown_path():
    assert refused("sagemaker", path="/endpoints/e/coffee").code == "UnknownOperationException"
    assert refused("s3", method="PATCH", path="/b").code == "MethodNotAllowed"


FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
GRANITE = "GraniteServiceVersion20100801"


@pytest.mark.parametrize(
    ("signed_as", "request_", "found"),
    [
        (
            "monitoring",
            {"headers": {"x-amz-target": f"{GRANITE}.ListMetrics"}},
            "cloudwatch.ListMetrics json",
        ),
        (
            "monitoring",
            {"path": f"/service/{GRANITE}/operation/ListMetrics"},
            "cloudwatch.ListMetrics smithy-rpc-v2-cbor",
        ),
        (
            "monitoring",
            {"headers": FORM, "body": b"Action=ListMetrics&Version=2010-08-01"},
            "cloudwatch.ListMetrics query",
        ),
        (
            "monitoring",
            {"method": "GET", "query": "Action=ListMetrics"},
            "cloudwatch.ListMetrics query",
        ),
        ("sqs", {"headers": {"x-amz-target": "AmazonSQS.ListQueues"}}, "sqs.ListQueues json"),
        ("sqs", {"headers": FORM, "body": b"Action=ListQueues"}, "sqs.ListQueues query"),
        (
            "sqs",
            {"headers": FORM, "path": "/000000000000/q", "body": b"Action=DeleteQueue"},
            "sqs.DeleteQueue query",
        ),
        ("sns", {"headers": FORM, "body": b"Action=ListTopics"}, "sns.ListTopics query"),
    ],
)
def test_a_service_is_spoken_to_in_the_protocol_of_the_request(signed_as, request_, found):
    made = Request(
        request_.get("method", "POST"),
        request_.get("path", "/"),
        request_.get("query", ""),
        request_.get("headers", {}),
        request_.get("body", b""),
    )
    model, operation = match(made, signed_as)
    assert f"{model.service_name}.{operation.name} {model.protocol}" == found
    assert operation.service_model is model


@pytest.mark.parametrize(
    "path",
    [
        "/service/Other/operation/ListMetrics",
        f"/service/{GRANITE}/operation/MakeCoffee",
        f"/service/{GRANITE}/operation/ListMetrics/",
    ],
)
def test_an_unknown_operation_path(path):
    error = refused("monitoring", path=path, headers={"smithy-protocol": "rpc-v2-cbor"})
    assert (error.code, error.status) == ("UnknownOperationException", 404)
    assert path in error.message


@pytest.mark.parametrize("service", ["kinesis", "no-such-thing"])
def test_a_service_that_is_not_served_is_named(service):
    error = refused(service, headers={"x-amz-target": "AmazonThing.ListThings"})
    assert error.status == 400
    assert f'"{service}"' in error.message
    assert "sagemaker" in error.message


def test_an_operation_that_is_not_there_yet_is_named():
    error = not_implemented("sagemaker", "CreateTrainingJob")
    assert (error.code, error.status) == ("UnsupportedOperation", 400)
    assert "sagemaker:CreateTrainingJob is not implemented by Sagehen yet" in error.message
    assert not_implemented("s3", "PutBucketPolicy").code == "NotImplemented"


@pytest.mark.parametrize(
    ("service", "content_type", "path", "model"),
    [
        ("sagemaker", "application/x-amz-json-1.1", "/", "sagemaker"),
        ("sagemaker", "text/csv", "/endpoints/e/invocations", "sagemaker-runtime"),
        ("s3", "", "/b/k", "s3"),
        ("kinesis", "application/x-amz-json-1.0", "/", "sagemaker-runtime"),
        ("ec2", "application/x-www-form-urlencoded; charset=utf-8", "/", "sts"),
        ("sns", "application/x-www-form-urlencoded; charset=utf-8", "/", "sns"),
        ("monitoring", "application/cbor", "/", "cloudwatch"),
    ],
)
def test_errors_are_told_in_a_form_that_the_sender_reads(service, content_type, path, model):
    headers = {
        "content-type": content_type,
        "authorization": f"AWS4-HMAC-SHA256 Credential=K/20261101/us-east-1/{service}/aws4_request",
    }
    assert likely_model(Request("POST", path, "", headers)).service_name == model
