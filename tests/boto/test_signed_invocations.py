"""Who may invoke: boto3's signatures and links, and what others make of them."""

import datetime
import http.client
import json
from urllib.parse import urlsplit

import boto3
import botocore.auth
import botocore.crt.auth
import pytest
from botocore.auth import S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

ECHO = """
def model_fn(model_dir): return None
def input_fn(body, content_type): return body
def predict_fn(data, model): return data
def output_fn(prediction, accept): return prediction
"""
PATH = "/endpoints/signed/invocations"
UNSIGNED = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}


@pytest.fixture(scope="module")
def signed(deploy):
    """An endpoint that echoes."""
    assert deploy.endpoint("signed", ECHO)["EndpointStatus"] == "InService"
    return deploy


def keys(server) -> Credentials:
    return Credentials(server.env["AWS_ACCESS_KEY_ID"], server.env["AWS_SECRET_ACCESS_KEY"])


def post(url: str, body: bytes = b"", headers: dict | None = None) -> tuple[int, str, bytes]:
    """Status, error code and body of the answer to plain HTTP."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.request("POST", f"{address.path}?{address.query}", body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("x-amzn-ErrorType", ""), answer.read()
    finally:
        connection.close()


def link(signed, seconds: int = 60, **params) -> str:
    """As boto3 makes it. A body would become a part of the URL, where no server looks for it."""
    given = {"EndpointName": "signed", "Body": b"", **params}
    url = signed.runtime.generate_presigned_url("invoke_endpoint", given, seconds, "POST")
    return str(url)


def test_a_link_invokes(signed):
    assert post(link(signed)) == (200, "", b"")


def test_a_link_s_parameters_go_along_as_they_were_signed(signed):
    url = link(signed, ContentType="text/csv", TargetVariant="AllTraffic")
    variant = {"X-Amzn-SageMaker-Target-Variant": "AllTraffic"}
    assert post(url, b"", {"Content-Type": "text/csv", **variant})[0] == 200
    for other in ({"Content-Type": "text/html", **variant}, {"Content-Type": "text/csv"}):
        assert post(url, b"", other)[:2] == (403, "InvalidSignatureException")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("/signed/", "/another/"),
        ("invocations?", "invocations-response-stream?"),
        ("X-Amz-Expires=60", "X-Amz-Expires=604800"),
        ("&X-Amz-Signature=", "&more=1&X-Amz-Signature="),
        ("X-Amz-Signature=", "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&X-Amz-Signature="),
    ],
    ids=["endpoint", "operation", "time", "parameter", "body"],
)
def test_a_changed_link_is_refused(signed, part, other):
    url = link(signed)
    assert part in url
    assert post(url.replace(part, other, 1))[:2] == (403, "InvalidSignatureException")


def test_a_link_is_for_the_body_that_was_signed(signed):
    assert post(link(signed), b"1,2")[:2] == (403, "InvalidSignatureException")


def test_an_expired_link_is_refused(signed, wait_until):
    # By botocore's own signer: that of awscrt signs no link that ends at once.
    request = AWSRequest("POST", signed.server.url + PATH)
    SigV4QueryAuth(keys(signed.server), "sagemaker", "us-east-1", expires=0).add_auth(request)
    url = request.url
    wait_until(lambda: post(url)[0] != 200)
    status, code, body = post(url)
    assert (status, code) == (403, "InvalidSignatureException")
    assert json.loads(body)["Message"].startswith("Signature expired")


def test_a_link_with_half_of_its_parameters_is_refused(signed):
    url = link(signed).replace("X-Amz-Date", "X-Amz-Dat")
    assert post(url)[:2] == (400, "IncompleteSignatureException")


def test_a_body_is_unsigned_where_the_signed_header_says_so(signed):
    request = AWSRequest("POST", signed.server.url + PATH, data=b"1,2", headers=UNSIGNED)
    SigV4Auth(keys(signed.server), "sagemaker", "us-east-1").add_auth(request)
    for body in (b"1,2", b"another"):
        assert post(request.url, body, dict(request.headers)) == (200, "", body)


def test_a_body_is_signed_where_the_header_was_added_later(signed):
    request = AWSRequest("POST", signed.server.url + PATH, data=b"1,2")
    SigV4Auth(keys(signed.server), "sagemaker", "us-east-1").add_auth(request)
    answer = post(request.url, b"1,2", {**request.headers, **UNSIGNED})
    assert answer[:2] == (403, "InvalidSignatureException")


def test_a_link_that_says_so_is_good_for_any_body(signed):
    url = f"{signed.server.url}{PATH}?X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"
    request = AWSRequest("POST", url)
    S3SigV4QueryAuth(keys(signed.server), "sagemaker", "us-east-1", expires=60).add_auth(request)
    for body in (b"1,2", b"another"):
        assert post(request.url, body) == (200, "", body)


def test_what_control_is_to_do_is_never_unsigned(signed):
    headers = {"X-Amz-Target": "SageMaker.ListModels", **UNSIGNED}
    request = AWSRequest("POST", signed.server.url + "/", data=b"{}", headers=headers)
    SigV4Auth(keys(signed.server), "sagemaker", "us-east-1").add_auth(request)
    assert post(request.url, b"{}", dict(request.headers))[0] == 403


def test_a_request_without_a_signature_is_refused(signed):
    answer = post(signed.server.url + PATH, b"1,2")
    assert answer[:2] == (403, "MissingAuthenticationTokenException")


def invoked_by(signed, **changes) -> tuple[int, str]:
    """Status and code that the real client gets with other keys or another region."""
    own = keys(signed.server)
    settings = {
        "aws_access_key_id": own.access_key,
        "aws_secret_access_key": own.secret_key,
        "region_name": "us-east-1",
        **changes,
    }
    config = Config(retries={"max_attempts": 0})
    client = boto3.client(
        "sagemaker-runtime", endpoint_url=signed.server.url, config=config, **settings
    )
    with pytest.raises(ClientError) as caught:
        client.invoke_endpoint(EndpointName="signed", Body=b"1,2")
    client.close()
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"aws_access_key_id": "AKIAUNKNOWN"}, "UnrecognizedClientException"),
        ({"aws_secret_access_key": "x" * 40}, "InvalidSignatureException"),
        ({"region_name": "eu-west-1"}, "InvalidSignatureException"),
    ],
    ids=["key", "secret", "region"],
)
def test_who_has_not_the_key_is_refused(signed, changes, code):
    assert invoked_by(signed, **changes) == (403, code)


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_client_whose_clock_is_off_is_refused(signed, monkeypatch, minutes):
    off = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)

    def read_clock(remove_tzinfo: bool = True) -> datetime.datetime:
        return off.replace(tzinfo=None) if remove_tzinfo else off

    for signers in (botocore.auth, botocore.crt.auth):
        monkeypatch.setattr(signers, "get_current_datetime", read_clock)
    assert invoked_by(signed) == (403, "InvalidSignatureException")
