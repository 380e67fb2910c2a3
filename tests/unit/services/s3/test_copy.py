"""Copies carry what they should, and nothing when a condition fails."""

from collections.abc import Callable
from typing import Any

import pytest

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


def test_conditions_on_the_source(s3: Any, source: dict[str, str], refused: Refused) -> None:
    etag = s3.head_object(**source)["ETag"]
    copy = {"Bucket": source["Bucket"], "Key": "copy", "CopySource": source}
    s3.copy_object(**copy, CopySourceIfMatch=etag)
    failed = ("PreconditionFailed", 412)
    assert refused(s3.copy_object, **copy, CopySourceIfMatch='"other"') == failed
    assert refused(s3.copy_object, **copy, CopySourceIfNoneMatch=etag) == failed
    assert refused(s3.copy_object, **copy, IfNoneMatch="*") == failed


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
    assert refused(s3.copy_object, **copy, CopySource="no-slash") == ("InvalidArgument", 400)
