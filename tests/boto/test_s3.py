"""S3 through the whole server. Its details are in tests/unit/services/s3."""

import base64
import http.client
import io
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest
import requests
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

MIB = 2**20


@pytest.fixture(scope="module")
def s3(aws):
    return aws.client("s3")


@pytest.fixture(scope="module")
def bucket(s3):
    s3.create_bucket(Bucket="whole-server")
    return "whole-server"


def test_a_file_goes_up_in_parts_and_comes_down(s3, bucket, tmp_path):
    data = random.Random(1).randbytes(30 * MIB + 5)
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(data)
    s3.upload_file(str(there), bucket, "parts")
    assert s3.head_object(Bucket=bucket, Key="parts")["ETag"].endswith('-4"')
    s3.download_file(bucket, "parts", str(back))
    assert back.read_bytes() == data


def test_a_large_body_in_one_piece(s3, bucket):
    data = random.Random(2).randbytes(20 * MIB)
    s3.put_object(Bucket=bucket, Key="piece", Body=io.BytesIO(data), ChecksumAlgorithm="SHA256")
    found = s3.get_object(Bucket=bucket, Key="piece", ChecksumMode="ENABLED")
    assert found["Body"].read() == data
    part = s3.get_object(Bucket=bucket, Key="piece", Range="bytes=-7")
    assert part["Body"].read() == data[-7:]


def test_a_refused_body_leaves_the_connection_in_step(s3, bucket):
    for _ in range(3):
        with pytest.raises(ClientError, match="NoSuchBucket"):
            s3.put_object(Bucket="no-such-bucket", Key="k", Body=bytes(3 * MIB))
        assert s3.list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_many_at_once(s3, bucket):
    def round_trip(number):
        key, body = f"many/{number}", random.Random(number).randbytes(40_000)
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(round_trip, range(60)))
    assert s3.list_objects_v2(Bucket=bucket, Prefix="many/")["KeyCount"] == 60


def test_odd_keys_pass_the_gateway(s3, bucket):
    for key in ("a//b", "../up", "./.", "ä b+c%2F", "q?x#y", "trailing/"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()


def test_a_link_needs_no_aws(s3, bucket):
    s3.put_object(Bucket=bucket, Key="linked", Body=b"hello")
    link = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "linked"})
    with urlopen(link) as answer:
        assert answer.read() == b"hello"


def test_a_link_writes_with_headers_and_conditions(aws, s3, bucket):
    target = {"Bucket": bucket, "Key": "by-link"}
    headers = {"Metadata": {"venue": "123"}, "Tagging": "k=v", "StorageClass": "STANDARD_IA"}
    link = s3.generate_presigned_url("put_object", Params={**target, **headers})
    assert requests.put(link, data=b"first", timeout=60).status_code == 200
    found = s3.head_object(**target, ChecksumMode="ENABLED")
    assert (found["Metadata"], found["StorageClass"]) == ({"venue": "123"}, "STANDARD_IA")
    assert found["ChecksumCRC64NVME"]
    url = f"{aws.url}/{bucket}/by-link"
    request = AWSRequest("PUT", url, params={"If-None-Match": "*"})
    keys = Credentials(aws.env["AWS_ACCESS_KEY_ID"], aws.env["AWS_SECRET_ACCESS_KEY"])
    S3SigV4QueryAuth(keys, "s3", aws.env["AWS_DEFAULT_REGION"], 600).add_auth(request)
    assert requests.put(request.url, data=b"second", timeout=60).status_code == 412
    assert s3.get_object(**target)["Body"].read() == b"first"


def test_a_key_that_no_xml_can_hold_passes_the_gateway(s3, bucket):
    upload = {"Bucket": bucket, "Key": "a\x01b"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    assert len(s3.list_multipart_uploads(Bucket=bucket, Prefix="a")["Uploads"]) == 1
    part = s3.upload_part(**upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    s3.abort_multipart_upload(**upload)
    assert s3.get_object(Bucket=bucket, Key="a\x01b")["Body"].read() == b"x"
    s3.delete_object(Bucket=bucket, Key="a\x01b")


def test_the_transfer_manager_copies(s3, bucket):
    s3.put_object(Bucket=bucket, Key="from", Body=bytes(12 * MIB))
    config = TransferConfig(multipart_threshold=8 * MIB)
    s3.copy({"Bucket": bucket, "Key": "from"}, bucket, "to", Config=config)
    assert s3.head_object(Bucket=bucket, Key="to")["ContentLength"] == 12 * MIB


def test_a_body_of_unsaid_length_passes_the_gateway(aws, s3, bucket):
    """The C++ SDK sends so, and with it Arrow and pandas: `Transfer-Encoding: chunked`."""
    data = random.Random(3).randbytes(3 * MIB)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="streamed", ChecksumAlgorithm="CRC32")
    query = f"?partNumber=1&uploadId={upload['UploadId']}"
    assert send_by_chunks(aws, f"/{bucket}/streamed{query}", data) == 200
    assert send_by_chunks(aws, f"/{bucket}/streamed-at-once", data) == 200
    part = s3.list_parts(Bucket=bucket, Key="streamed", UploadId=upload["UploadId"])["Parts"][0]
    assert part["Size"] == len(data)
    at_once = s3.get_object(Bucket=bucket, Key="streamed-at-once", ChecksumMode="ENABLED")
    assert at_once["Body"].read() == data


def test_a_form_passes_the_gateway(s3, bucket):
    data = random.Random(4).randbytes(5 * MIB)
    bounds = [["content-length-range", 1, len(data)]]
    signed = s3.generate_presigned_post(bucket, "by-form/${filename}", Conditions=bounds)
    sent = requests.post(
        signed["url"], data=signed["fields"], files={"file": ("a.bin", data)}, timeout=60
    )
    assert sent.status_code == 204, sent.text
    assert s3.get_object(Bucket=bucket, Key="by-form/a.bin")["Body"].read() == data
    fields = {**signed["fields"], "key": "elsewhere"}
    refused = requests.post(signed["url"], data=fields, files={"file": b"x"}, timeout=60)
    assert refused.status_code == 403
    assert "Invalid according to Policy: Policy Condition failed" in refused.text


def send_by_chunks(aws, path, data):
    """Puts the data by aws-chunked in HTTP's chunks, with a trailer; gives the status."""
    checksum = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    headers = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(len(data)),
        "x-amz-trailer": "x-amz-checksum-crc32",
        "content-encoding": "aws-chunked",
    }
    request = AWSRequest("PUT", aws.url + path, headers=headers)
    keys = Credentials(aws.env["AWS_ACCESS_KEY_ID"], aws.env["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(keys, "s3", aws.env["AWS_DEFAULT_REGION"]).add_auth(request)
    pieces = [b"%x\r\n" % len(data), data, b"\r\n0\r\nx-amz-checksum-crc32:"]
    pieces += [checksum.encode(), b"\r\n\r\n"]
    connection = http.client.HTTPConnection("127.0.0.1", aws.port)
    connection.request("PUT", path, iter(pieces), dict(request.headers.items()))
    status = connection.getresponse().status
    connection.close()
    return status
