"""What a careless or hostile client sends to the running server."""

import datetime
import http.client
import json
import socket
import urllib.parse

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError


def client(server, service: str, **changes):
    keys = {
        "aws_access_key_id": server.env["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": server.env["AWS_SECRET_ACCESS_KEY"],
        "region_name": "us-east-1",
        **changes,
    }
    config = Config(retries={"max_attempts": 0}, parameter_validation=False)
    return boto3.client(service, endpoint_url=server.url, config=config, **keys)


def error_of(call) -> dict:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response


def raw(server, method: str, path: str, headers: dict, body: bytes = b"") -> tuple[int, bytes]:
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def signed(server, target: str, body: bytes, **changes: str) -> dict:
    request = AWSRequest(
        "POST",
        server.url + "/",
        data=body,
        headers={"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"},
    )
    keys = Credentials(server.env["AWS_ACCESS_KEY_ID"], server.env["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(keys, "sagemaker", "us-east-1").add_auth(request)
    return dict(request.headers) | changes


@pytest.mark.parametrize("service", ["sagemaker", "s3", "sts"])
def test_wrong_secret(server, service):
    wrong = client(server, service, aws_secret_access_key="x" * 40)
    act = {"sagemaker": "list_models", "s3": "list_buckets", "sts": "get_caller_identity"}[service]
    answer = error_of(getattr(wrong, act))
    assert "Signature" in answer["Error"]["Code"]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_wrong_secret_at_invoke(server):
    wrong = client(server, "sagemaker-runtime", aws_secret_access_key="x" * 40)
    answer = error_of(lambda: wrong.invoke_endpoint(EndpointName="e", Body=b"1"))
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_unknown_key(server):
    answer = error_of(client(server, "sagemaker", aws_access_key_id="AKIAUNKNOWN").list_models)
    assert answer["Error"]["Code"] == "UnrecognizedClientException"


def test_other_region_says_which_to_use(server):
    answer = error_of(client(server, "sagemaker", region_name="eu-west-1").list_models)
    assert "us-east-1" in answer["Error"]["Message"]


def test_unsigned(server):
    headers = {"X-Amz-Target": "SageMaker.ListModels", "Content-Type": "application/x-amz-json-1.1"}
    status, body = raw(server, "POST", "/", headers, b"{}")
    assert status in (400, 403)
    assert "MissingAuthenticationToken" in json.loads(body)["__type"]


def test_old_date(server):
    body = b"{}"
    request = AWSRequest(
        "POST", server.url + "/", data=body, headers={"X-Amz-Target": "SageMaker.ListModels"}
    )
    keys = Credentials(server.env["AWS_ACCESS_KEY_ID"], server.env["AWS_SECRET_ACCESS_KEY"])
    auth = SigV4Auth(keys, "sagemaker", "us-east-1")
    old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    request.context["timestamp"] = old.strftime("%Y%m%dT%H%M%SZ")
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    signed_headers = auth.signed_headers(auth.headers_to_sign(request))
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, "
        f"SignedHeaders={signed_headers}, Signature={signature}"
    )
    status, answer = raw(server, "POST", "/", dict(request.headers), body)
    assert status in (400, 403)
    assert "Signature expired" in json.loads(answer)["message"]


def test_malformed_json(server):
    body = b'{"MaxResults": '
    status, answer = raw(server, "POST", "/", signed(server, "SageMaker.ListModels", body), body)
    assert status == 400
    assert "SerializationException" in json.loads(answer)["__type"]


def test_unknown_operation(server):
    headers = signed(server, "SageMaker.MakeCoffee", b"{}")
    status, answer = raw(server, "POST", "/", headers, b"{}")
    assert status in (400, 404)
    assert "UnknownOperationException" in json.loads(answer)["__type"]


def test_operation_that_is_not_there_yet_is_named(server):
    answer = error_of(lambda: client(server, "sagemaker").list_labeling_jobs())
    assert "ListLabelingJobs" in answer["Error"]["Message"]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] < 500


def test_service_that_is_not_there_is_named(server):
    answer = error_of(lambda: client(server, "dynamodb").list_tables())
    assert "dynamodb" in answer["Error"]["Message"]


def test_over_long_name(server):
    sagemaker = client(server, "sagemaker")
    answer = error_of(lambda: sagemaker.describe_endpoint(EndpointName="a" * 64))
    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["Error"]["Message"].startswith("1 validation error detected: Value 'aaaa")
    assert "at 'endpointName' failed to satisfy constraint" in answer["Error"]["Message"]


def test_unknown_endpoint(server):
    answer = error_of(lambda: client(server, "sagemaker").describe_endpoint(EndpointName="no"))
    assert answer["Error"]["Message"] == (
        'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/no".'
    )
    runtime = client(server, "sagemaker-runtime")
    answer = error_of(lambda: runtime.invoke_endpoint(EndpointName="no", Body=b"1"))
    assert answer["Error"]["Code"] == "ValidationError"


def test_duplicate_name(server, deploy):
    deploy.config("twice")
    answer = error_of(lambda: deploy.config("twice"))
    assert answer["Error"]["Message"].startswith('Cannot create already existing model "arn:')


def test_body_over_the_limit(server, deploy):
    deploy.endpoint("large")
    answer = error_of(lambda: deploy.invoke("large", "1" * (25 * 2**20 + 1)))
    assert answer["Error"]["Code"] == "ValidationError"
    assert "oversize body" in answer["Error"]["Message"]


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nHost\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_hurts_nobody(server, junk):
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=120) as connection:
        connection.sendall(junk)
        answer = connection.recv(65536)
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]
    assert server.get("/_sagehen/health")


def test_endless_headers_are_refused(server):
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=120) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"X-A: " + b"a" * 2_000_000)
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"431")
    assert server.get("/_sagehen/health")
