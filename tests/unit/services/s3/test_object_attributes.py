"""GetObjectAttributes: of objects in one piece and in parts."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

Refused = Callable[..., tuple[str, int]]

ALL = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
PART = 5 * 2**20


def upload(s3: Any, bucket: str, sizes: list[int], **more: str) -> str:
    """An object `parts` of parts of these sizes; its ETag."""
    begun = s3.create_multipart_upload(Bucket=bucket, Key="parts", **more)["UploadId"]
    the_upload = {"Bucket": bucket, "Key": "parts", "UploadId": begun}
    parts = []
    for number, size in enumerate(sizes, 1):
        part = s3.upload_part(**the_upload, PartNumber=number, Body=bytes(size), **more)
        kept = {name: part[name] for name in part if name == "ETag" or name == "ChecksumSHA256"}
        parts.append({"PartNumber": number, **kept})
    done = s3.complete_multipart_upload(**the_upload, MultipartUpload={"Parts": parts})
    return str(done["ETag"])


def test_an_object_in_one_piece(s3: Any, bucket: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"12345", ChecksumAlgorithm="SHA256")
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=ALL)
    assert found["ETag"] == hashlib.md5(b"12345").hexdigest()
    assert found["Checksum"] == {
        "ChecksumSHA256": put["ChecksumSHA256"],
        "ChecksumType": "FULL_OBJECT",
    }
    assert (found["StorageClass"], found["ObjectSize"]) == ("STANDARD", 5)
    assert "ObjectParts" not in found
    assert found["LastModified"] == s3.head_object(Bucket=bucket, Key="k")["LastModified"]


def test_only_what_is_asked_for_is_said(s3: Any, bucket: str, refused: Refused) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"1", StorageClass="STANDARD_IA")
    asked = {"Bucket": bucket, "Key": "k"}
    found = s3.get_object_attributes(**asked, ObjectAttributes=["StorageClass"])
    assert {*found} & {*ALL} == {"StorageClass"}
    assert found["StorageClass"] == "STANDARD_IA"
    read = s3.get_object_attributes
    assert refused(read, **asked, ObjectAttributes=["Colour"]) == ("InvalidArgument", 400)
    assert refused(read, **asked, ObjectAttributes=[]) == ("InvalidRequest", 400)
    odd = {**asked, "ObjectAttributes": ["ETag"], "VersionId": "nope"}
    assert refused(read, **odd) == ("InvalidArgument", 400)
    missing = {"Bucket": bucket, "Key": "no", "ObjectAttributes": ["ETag"]}
    assert refused(read, **missing) == ("NoSuchKey", 404)


def test_parts_with_checksums_are_listed_in_pages(s3: Any, bucket: str) -> None:
    etag = upload(s3, bucket, [PART, PART, 7], ChecksumAlgorithm="SHA256")
    asked = {"Bucket": bucket, "Key": "parts", "ObjectAttributes": ALL}
    found = s3.get_object_attributes(**asked, MaxParts=2)
    assert f'"{found["ETag"]}"' == etag
    assert found["ObjectSize"] == 2 * PART + 7
    assert found["Checksum"]["ChecksumType"] == "COMPOSITE"
    assert "-" not in found["Checksum"]["ChecksumSHA256"]
    parts = found["ObjectParts"]
    assert (parts["TotalPartsCount"], parts["IsTruncated"], parts["MaxParts"]) == (3, True, 2)
    assert [(part["PartNumber"], part["Size"]) for part in parts["Parts"]] == [(1, PART), (2, PART)]
    assert all("ChecksumSHA256" in part for part in parts["Parts"])
    rest = s3.get_object_attributes(**asked, PartNumberMarker=parts["NextPartNumberMarker"])
    assert [part["Size"] for part in rest["ObjectParts"]["Parts"]] == [7]
    assert rest["ObjectParts"]["IsTruncated"] is False


def test_parts_without_checksums_are_counted(server: Any, bucket: str) -> None:
    s3 = server.client(request_checksum_calculation="when_required")
    upload(s3, bucket, [PART, 1])
    asked = {"Bucket": bucket, "Key": "parts", "ObjectAttributes": ["ObjectParts"]}
    assert s3.get_object_attributes(**asked)["ObjectParts"] == {"TotalPartsCount": 2}


@pytest.mark.parametrize(("limit", "code"), [(-1, "InvalidArgument"), (2**31, "InvalidArgument")])
def test_the_number_of_parts_has_bounds(
    s3: Any, bucket: str, refused: Refused, limit: int, code: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    asked = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["ObjectParts"]}
    assert refused(s3.get_object_attributes, **asked, MaxParts=limit) == (code, 400)
