"""Copies carry what they should, and nothing when a condition fails."""

import base64
import datetime
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

Refused = Callable[..., tuple[str, int]]


@pytest.fixture
def source(s3: Any, bucket: str) -> dict[str, str]:
    s3.put_object(
        Bucket=bucket,
        Key="source",
        Body=b"data",
        ContentType="text/csv",
        Metadata={"a": "1"},
        Tagging="t=1",
        ChecksumAlgorithm="SHA1",
    )
    return {"Bucket": bucket, "Key": "source"}


def test_a_copy_has_all_that_the_source_has(s3: Any, source: dict[str, str]) -> None:
    bucket = source["Bucket"]
    answer = s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    found = s3.get_object(Bucket=bucket, Key="copy", ChecksumMode="ENABLED")
    assert found["Body"].read() == b"data"
    assert (found["ContentType"], found["Metadata"], found["TagCount"]) == (
        "text/csv",
        {"a": "1"},
        1,
    )
    assert answer["CopyObjectResult"]["ETag"] == found["ETag"]
    assert answer["CopyObjectResult"]["ChecksumSHA1"] == found["ChecksumSHA1"]


def test_a_copy_can_say_something_else(s3: Any, source: dict[str, str]) -> None:
    bucket = source["Bucket"]
    s3.copy_object(
        Bucket=bucket,
        Key="copy",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"b": "2"},
        TaggingDirective="REPLACE",
        Tagging="",
        ServerSideEncryption="AES256",
        ChecksumAlgorithm="CRC64NVME",
    )
    found = s3.get_object(Bucket=bucket, Key="copy", ChecksumMode="ENABLED")
    assert (found["ContentType"], found["Metadata"]) == ("binary/octet-stream", {"b": "2"})
    assert "TagCount" not in found
    assert found["ServerSideEncryption"] == "AES256"
    assert found["ChecksumCRC64NVME"]


def test_an_object_is_copied_onto_itself_only_to_change(
    s3: Any, source: dict[str, str], refused: Refused
) -> None:
    assert refused(s3.copy_object, **source, CopySource=source) == ("InvalidRequest", 400)
    s3.copy_object(**source, CopySource=source, MetadataDirective="REPLACE", Metadata={"c": "3"})
    found = s3.get_object(**source)
    assert (found["Metadata"], found["Body"].read()) == ({"c": "3"}, b"data")


def test_an_object_is_copied_onto_itself_to_encrypt_it(
    s3: Any, source: dict[str, str], refused: Refused
) -> None:
    bucket = source["Bucket"]
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    s3.copy_object(**source, CopySource=source)
    assert s3.head_object(**source)["Metadata"] == {"a": "1"}
    s3.delete_bucket_encryption(Bucket=bucket)
    assert refused(s3.copy_object, **source, CopySource=source) == ("InvalidRequest", 400)


def test_a_plus_in_the_source_is_a_space(server: Any, s3: Any, bucket: str) -> None:
    """Go's clients encode a space so, and a plus as %2B."""
    for key in ("a key", "a+key"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for written, key in (("a+key", "a key"), ("a%2Bkey", "a+key"), ("a%20key", "a key")):
        headers = {"x-amz-copy-source": f"{bucket}%2F{written}"}
        request = AWSRequest("PUT", f"{server.url}/{bucket}/copy", headers)
        S3SigV4Auth(server.credentials, "s3", "us-east-1").add_auth(request)
        sent = requests.put(request.url, headers=dict(request.headers), timeout=60)
        assert sent.status_code == 200, sent.text
        assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == key.encode()


def test_conditions_on_the_source(s3: Any, source: dict[str, str], refused: Refused) -> None:
    etag = s3.head_object(**source)["ETag"]
    copy = {"Bucket": source["Bucket"], "Key": "copy", "CopySource": source}
    s3.copy_object(**copy, CopySourceIfMatch=etag)
    failed = ("PreconditionFailed", 412)
    assert refused(s3.copy_object, **copy, CopySourceIfMatch='"other"') == failed
    assert refused(s3.copy_object, **copy, CopySourceIfNoneMatch=etag) == failed
    assert refused(s3.copy_object, **copy, IfNoneMatch="*") == failed
    written = s3.head_object(**source)["LastModified"]
    assert refused(s3.copy_object, **copy, CopySourceIfModifiedSince=written) == failed
    tomorrow = written + datetime.timedelta(days=1)
    s3.copy_object(**copy, CopySourceIfModifiedSince=tomorrow)
    upload = s3.create_multipart_upload(Bucket=source["Bucket"], Key="copy")["UploadId"]
    part = {**copy, "UploadId": upload, "PartNumber": 1}
    s3.upload_part_copy(**part, CopySourceIfModifiedSince=tomorrow)


@pytest.mark.parametrize("algorithm", [{}, {"ChecksumAlgorithm": "SHA256"}])
def test_a_copy_of_an_object_in_parts_is_not_in_parts(
    s3: Any, bucket: str, algorithm: dict[str, str]
) -> None:
    data = bytes(5 * 2**20) + b"end"
    begun = s3.create_multipart_upload(Bucket=bucket, Key="parts", **algorithm)
    upload = {"Bucket": bucket, "Key": "parts", "UploadId": begun["UploadId"]}
    parts = []
    for number, piece in enumerate((data[:-3], data[-3:]), 1):
        part = s3.upload_part(**upload, PartNumber=number, Body=piece, **algorithm)
        names = {"ETag", "ChecksumSHA256"} if algorithm else {"ETag"}
        parts.append({"PartNumber": number, **{name: part[name] for name in names}})
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    source = {"Bucket": bucket, "Key": "parts"}
    result = s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)["CopyObjectResult"]
    assert result["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    assert result["ChecksumType"] == "FULL_OBJECT"
    if algorithm:
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        assert result["ChecksumSHA256"] == digest
    copy = s3.get_object(Bucket=bucket, Key="copy", PartNumber=1, ChecksumMode="ENABLED")
    assert copy["Body"].read() == data
    assert "PartsCount" not in copy
    with pytest.raises(s3.exceptions.ClientError, match="partnumber is not satisfiable"):
        s3.get_object(Bucket=bucket, Key="copy", PartNumber=2)


def test_missing_sources_and_targets(s3: Any, source: dict[str, str], refused: Refused) -> None:
    bucket = source["Bucket"]
    copy = {"Bucket": bucket, "Key": "copy"}
    missing = {"Bucket": bucket, "Key": "no"}
    assert refused(s3.copy_object, **copy, CopySource=missing) == ("NoSuchKey", 404)
    nowhere = {"Bucket": "no-such", "Key": "no"}
    assert refused(s3.copy_object, **copy, CopySource=nowhere) == ("NoSuchBucket", 404)
    assert refused(s3.copy_object, Bucket="no-such", Key="k", CopySource=source)[0] == (
        "NoSuchBucket"
    )
    with pytest.raises(s3.exceptions.ClientError, match="Invalid copy source object key"):
        s3.copy_object(**copy, CopySource="no-slash")
