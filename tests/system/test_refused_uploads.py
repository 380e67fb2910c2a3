"""An upload that is refused before its body is read gets its own error, whoever sends it."""

from collections import Counter

import pytest
import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

OWNER = {"x-amz-expected-bucket-owner": "999999999999"}


@pytest.fixture(scope="module")
def bucket(server):
    server.client("s3").create_bucket(Bucket="refused-uploads")
    return "refused-uploads"


@pytest.fixture(scope="module")
def put(server):
    """`put(path, body, headers)`: the status, as `requests` gets it, which sends no `Expect`."""
    env = server.env
    keys = Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"])
    session = requests.Session()
    session.trust_env = False

    def send(path, body, headers):
        url = f"{server.url}/{path}"
        headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", **headers}
        request = AWSRequest("PUT", url, data=body, headers=headers)
        S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
        return session.put(url, data=body, headers=dict(request.headers), timeout=60).status_code

    return send


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize(
    ("size", "times"), [(1000, 200), (1_000_000, 60), (20_000_000, 10), (100_000_000, 1)]
)
def test_requests_gets_the_error_that_it_is(bucket, put, size, times, connection):
    body, headers = bytes(size), {**OWNER, "Connection": connection}
    statuses = Counter(put(f"{bucket}/k", body, headers) for _ in range(times))
    assert statuses == {403: times}


@pytest.mark.parametrize("path", ["no-such-bucket/k", "{}/k?partNumber=1&uploadId=none"])
def test_what_is_not_there_is_told(bucket, put, path):
    statuses = Counter(put(path.format(bucket), bytes(300_000), {}) for _ in range(60))
    assert statuses == {404: 60}


def test_boto3_gets_the_error_that_it_is(server, bucket):
    s3 = server.client("s3")

    def status():
        s3.list_buckets()
        s3.put_object(Bucket=bucket, Key="good", Body=b"x")
        with pytest.raises(ClientError) as refused:
            s3.put_bucket_policy(Bucket=bucket, Policy="{}")
        return refused.value.response["ResponseMetadata"]["HTTPStatusCode"]

    assert Counter(status() for _ in range(100)) == {501: 100}


def test_s3_has_one_request_id(server, bucket):
    s3 = server.client("s3")
    with pytest.raises(ClientError) as refused:
        s3.get_object(Bucket=bucket, Key="none")
    answer = refused.value.response
    told = answer["ResponseMetadata"]
    assert told["RequestId"] == told["HTTPHeaders"]["x-amz-request-id"]
    body = requests.get(f"{server.url}/{bucket}/none", timeout=60)
    assert f"<RequestId>{body.headers['x-amz-request-id']}</RequestId>" in body.text
    for headers in (
        told["HTTPHeaders"],
        body.headers,
        s3.list_buckets()["ResponseMetadata"]["HTTPHeaders"],
    ):
        assert "x-amzn-requestid" not in headers
