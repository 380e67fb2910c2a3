"""Which operation of which service is asked for, on the one port."""

import re

import botocore.session
import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.match import likely_model, match, not_implemented
from sagehen.wire.services import service as read_service


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


@pytest.mark.parametrize(
    ("signed_as", "right"), [("cloudwatch", "monitoring"), ("sagemaker-runtime", "sagemaker")]
)
def test_a_service_is_signed_for_by_its_own_name(signed_as, right):
    error = refused(signed_as, headers={"x-amz-target": f"{GRANITE}.ListMetrics"})
    assert f"correct service: '{right}'" in error.message
    assert error.status == 403


def two(name: str, other: str) -> list[str]:
    return [f"{name}=ListTopics&{other}=DeleteTopic", f"{other}=DeleteTopic&{name}=ListTopics"]


@pytest.mark.parametrize(
    "other", ["Action", "action", "ACTION", "%41ction", "+Action", "Action%00"]
)
def test_two_actions_are_refused(other):
    for pair in two("Action", other):
        one, another = (half.encode() for half in pair.split("&"))
        for request_ in (
            {"query": pair, "method": "GET"},
            {"body": pair.encode()},
            {"query": one.decode(), "body": another},
            {"query": another.decode(), "body": one},
        ):
            error = refused("sns", **request_)
            assert (error.code, error.status) == ("InvalidQueryParameter", 400)


def test_one_action_in_small_letters_is_none():
    assert refused("sns", body=b"action=ListTopics").code == "MissingAction"


def test_two_versions_are_refused():
    for body, query in (
        (b"Action=ListTopics&Version=2010-03-31&Version=2010-03-31", ""),
        (b"Action=ListTopics&Version=2010-03-31", "version=2010-03-31"),
    ):
        error = refused("sns", body=body, query=query, headers=FORM)
        assert (error.code, "version" in error.message) == ("InvalidQueryParameter", True)


def test_any_parameter_of_query_comes_once():
    error = refused("sns", body=b"Action=DeleteTopic&TopicArn=a", query="TopicArn=b")
    assert (error.code, "TopicArn" in error.message) == ("InvalidQueryParameter", True)


@pytest.mark.parametrize(
    ("signed_as", "request_"),
    [
        ("sagemaker", {"headers": {"x-amz-target": "SageMaker.ListModels,SageMaker.DeleteModel"}}),
        (
            "sagemaker",
            {
                "headers": {
                    "x-amz-target": "SageMaker.ListModels",
                    "x_amz_target": "SageMaker.DeleteModel",
                }
            },
        ),
        (
            "sagemaker",
            {"headers": {"x-amz-target": "SageMaker.ListModels"}, "query": "Action=DeleteModel"},
        ),
        (
            "sqs",
            {
                "headers": {"x-amz-target": "AmazonSQS.ListQueues", **FORM},
                "body": b"Action=DeleteQueue",
            },
        ),
        (
            "monitoring",
            {
                "headers": {"x-amz-target": f"{GRANITE}.ListMetrics"},
                "path": f"/service/{GRANITE}/operation/PutMetricData",
            },
        ),
        (
            "monitoring",
            {"path": f"/service/{GRANITE}/operation/PutMetricData", "query": "Action=ListMetrics"},
        ),
    ],
)
def test_two_ways_to_name_an_operation_are_refused(signed_as, request_):
    error = refused(signed_as, **request_)
    assert (error.code, error.status) == ("UnknownOperationException", 404)
    assert "more than once" in error.message


def test_a_target_beside_an_action_in_query():
    headers = {"x-amz-target": "AmazonSimpleNotificationService.DeleteTopic", **FORM}
    assert refused("sns", headers=headers, body=b"Action=ListTopics").code == (
        "InvalidQueryParameter"
    )


@pytest.mark.parametrize("name", ["cloudwatch", "iam", "sns", "sqs", "sts"])
def test_no_parameter_of_an_operation_is_called_like_what_names_it(name):
    model = read_service(name, "query")
    for operation in model.operation_names:
        shape = model.operation_model(operation).input_shape
        members = shape.members if shape else {}
        assert {"action", "version"}.isdisjoint(member.lower() for member in members)


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
