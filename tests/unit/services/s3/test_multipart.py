"""Uploads in parts, by hand and by boto3's transfer manager."""

import base64
import hashlib
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from boto3.s3.transfer import TransferConfig

Refused = Callable[..., tuple[str, int]]
MIB = 2**20
FIRST, SECOND = random.Random(1).randbytes(5 * MIB), b"the rest"


@pytest.fixture
def begin(s3: Any, bucket: str) -> Callable[..., dict[str, str]]:
    """`begin(…)` creates an upload of the key `big`."""

    def create(**more: str) -> dict[str, str]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key="big", **more)
        return {"Bucket": bucket, "Key": "big", "UploadId": upload["UploadId"]}

    return create


def send(s3: Any, upload: dict[str, str], *pieces: bytes, **more: str) -> list[dict[str, Any]]:
    parts = []
    for number, piece in enumerate(pieces, start=1):
        part = s3.upload_part(**upload, PartNumber=number, Body=piece, **more)
        names = {"ETag", f"Checksum{more.get('ChecksumAlgorithm')}"}
        kept = {name: part[name] for name in part if name in names}
        parts.append({"PartNumber": number, **kept})
    return parts


def complete(s3: Any, upload: dict[str, str], parts: list[Any], **more: Any) -> Any:
    return s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **more)


def test_parts_make_one_object(s3: Any, begin: Any, server: Any) -> None:
    upload = begin(Metadata={"a": "1"}, ContentType="text/x")
    parts = send(s3, upload, FIRST, SECOND)
    answer = complete(s3, upload, parts)
    digests = hashlib.md5(FIRST).digest() + hashlib.md5(SECOND).digest()
    assert answer["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-2"'
    target = {"Bucket": upload["Bucket"], "Key": "big"}
    found = s3.get_object(**target)
    assert found["Body"].read() == FIRST + SECOND
    assert (found["Metadata"], found["ContentType"]) == ({"a": "1"}, "text/x")
    second = s3.get_object(**target, PartNumber=2)
    assert (second["Body"].read(), second["PartsCount"]) == (SECOND, 2)
    across = s3.get_object(**target, Range=f"bytes={5 * MIB - 2}-{5 * MIB + 2}")
    assert across["Body"].read() == (FIRST + SECOND)[5 * MIB - 2 : 5 * MIB + 3]
    assert complete(s3, upload, parts)["ETag"] == answer["ETag"], "asked again, answered again"


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256", "SHA512"])
def test_a_composite_checksum_is_of_the_parts(s3: Any, begin: Any, algorithm: str) -> None:
    upload = begin(ChecksumAlgorithm=algorithm)
    parts = send(s3, upload, FIRST, SECOND, ChecksumAlgorithm=algorithm)
    name = f"Checksum{algorithm}"
    answer = complete(s3, upload, parts)
    assert answer["ChecksumType"] == "COMPOSITE"
    assert answer[name].endswith("-2")
    if algorithm == "SHA256":
        together = b"".join(base64.b64decode(part[name]) for part in parts)
        digest = base64.b64encode(hashlib.sha256(together).digest()).decode()
        assert answer[name] == f"{digest}-2"
    found = s3.get_object(Bucket=upload["Bucket"], Key="big", ChecksumMode="ENABLED")
    assert found["Body"].read() == FIRST + SECOND
    assert found[name] == answer[name]


def test_a_composite_checksum_can_be_asked_for(s3: Any, begin: Any, refused: Refused) -> None:
    upload = begin(ChecksumAlgorithm="SHA256")
    parts = send(s3, upload, SECOND, ChecksumAlgorithm="SHA256")
    inner = hashlib.sha256(SECOND).digest()
    value = base64.b64encode(hashlib.sha256(inner).digest()).decode()
    wrong = base64.b64encode(inner).decode()
    finish = {**upload, "MultipartUpload": {"Parts": parts}}
    answer = refused(s3.complete_multipart_upload, **finish, ChecksumSHA256=f"{wrong}-1")
    assert answer == ("BadDigest", 400)
    complete(s3, upload, parts, ChecksumSHA256=f"{value}-1")


def test_a_full_checksum_is_of_the_whole(s3: Any, begin: Any, refused: Refused) -> None:
    upload = begin(ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    parts = send(s3, upload, FIRST, SECOND, ChecksumAlgorithm="CRC32")
    whole = base64.b64encode(zlib.crc32(FIRST + SECOND).to_bytes(4, "big")).decode()
    wrong = base64.b64encode(b"abcd").decode()
    finish = s3.complete_multipart_upload
    more = {**upload, "MultipartUpload": {"Parts": parts}, "ChecksumType": "FULL_OBJECT"}
    assert refused(finish, **more, ChecksumCRC32=wrong) == ("BadDigest", 400)
    assert finish(**more, ChecksumCRC32=whole)["ChecksumCRC32"] == whole
    found = s3.get_object(Bucket=upload["Bucket"], Key="big", ChecksumMode="ENABLED")
    assert found["Body"].read() == FIRST + SECOND


def test_what_cannot_be_completed(s3: Any, begin: Any, refused: Refused) -> None:
    upload = begin()
    parts = send(s3, upload, b"small", SECOND)
    finish = s3.complete_multipart_upload

    def code(chosen: list[Any]) -> str:
        return refused(finish, **upload, MultipartUpload={"Parts": chosen})[0]

    with pytest.raises(s3.exceptions.ClientError) as caught:
        finish(**upload, MultipartUpload={"Parts": parts})
    error = caught.value.response["Error"]
    message = "Your proposed upload is smaller than the minimum allowed size"
    assert (error["Code"], error["Message"]) == ("EntityTooSmall", message)
    said = {name: error[name] for name in ("ETag", "PartNumber", "ProposedSize", "MinSizeAllowed")}
    assert said == {
        "ETag": parts[0]["ETag"].strip('"'),
        "PartNumber": "1",
        "ProposedSize": "5",
        "MinSizeAllowed": str(5 * MIB),
    }
    assert code(parts[::-1]) == "InvalidPartOrder"
    assert code([{"PartNumber": 3, "ETag": '"x"'}]) == "InvalidPart"
    assert code([{"PartNumber": 1, "ETag": '"x"'}]) == "InvalidPart"
    assert code([]) == "MalformedXML"
    assert complete(s3, upload, parts[1:])["ETag"].endswith('-1"')
    assert s3.get_object(Bucket=upload["Bucket"], Key="big")["Body"].read() == SECOND


def test_part_numbers_have_bounds(s3: Any, begin: Any, refused: Refused) -> None:
    upload = begin()
    for number in (0, 10_001):
        part = {**upload, "PartNumber": number, "Body": b""}
        assert refused(s3.upload_part, **part) == ("InvalidArgument", 400)


def test_an_aborted_upload_is_gone(s3: Any, begin: Any, refused: Refused, server: Any) -> None:
    before = server.files()
    upload = begin()
    send(s3, upload, b"1", b"2")
    s3.abort_multipart_upload(**upload)
    assert server.files() == before
    part = {**upload, "PartNumber": 1, "Body": b""}
    assert refused(s3.upload_part, **part) == ("NoSuchUpload", 404)
    assert refused(s3.abort_multipart_upload, **upload) == ("NoSuchUpload", 404)
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.list_parts(**upload)
    assert caught.value.response["Error"]["UploadId"] == upload["UploadId"]


def test_a_completed_upload_may_be_aborted(s3: Any, begin: Any) -> None:
    """As `finally` does in many programs; the object stays."""
    upload = begin()
    complete(s3, upload, send(s3, upload, SECOND))
    s3.abort_multipart_upload(**upload)
    assert s3.get_object(Bucket=upload["Bucket"], Key="big")["Body"].read() == SECOND


def test_a_completion_without_parts(s3: Any, begin: Any, refused: Refused) -> None:
    finish = s3.complete_multipart_upload
    upload = begin()
    assert refused(finish, **{**upload, "UploadId": "unknown"}) == ("NoSuchUpload", 404)
    assert refused(finish, **upload) == ("InvalidRequest", 400)


@pytest.mark.parametrize("character", ["\x01", "\x0b", "\ufffe"])
def test_an_upload_of_a_key_that_no_xml_can_hold(s3: Any, bucket: str, character: str) -> None:
    key = f"a{character}b"
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key)
    upload = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
    assert len(s3.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1
    listed = s3.list_multipart_uploads(Bucket=bucket, EncodingType="url")["Uploads"]
    assert unquote(listed[0]["Key"]) == key
    parts = send(s3, upload, SECOND)
    assert len(s3.list_parts(**upload)["Parts"]) == 1
    complete(s3, upload, parts)
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == SECOND
    with pytest.raises(s3.exceptions.ClientError, match="NoSuchKey"):
        s3.get_object(Bucket=bucket, Key=key + character)


def test_a_conditional_completion_notices_other_writes(
    s3: Any, begin: Any, refused: Refused
) -> None:
    conflict = ("ConditionalRequestConflict", 409)
    target = {"Bucket": (upload := begin())["Bucket"], "Key": "big"}
    s3.delete_object(**target)
    complete(s3, upload, send(s3, upload, SECOND), IfNoneMatch="*")

    upload = begin()
    finish = {"s3": s3, "upload": upload, "parts": send(s3, upload, SECOND)}
    assert refused(complete, **finish, IfNoneMatch="*") == ("PreconditionFailed", 412)
    s3.delete_object(**target)
    assert refused(complete, **finish, IfNoneMatch="*") == conflict
    assert refused(complete, **finish, IfMatch="x") == ("NoSuchKey", 404)
    etag = s3.put_object(**target, Body=b"between")["ETag"]
    assert refused(complete, **finish, IfMatch='"other"') == ("PreconditionFailed", 412)
    assert refused(complete, **finish, IfMatch=etag) == conflict

    upload = begin()
    parts = send(s3, upload, SECOND)
    complete(s3, upload, parts, IfMatch=etag)
    assert s3.get_object(**target)["Body"].read() == SECOND


def test_parts_copied_from_an_object(s3: Any, begin: Any, refused: Refused) -> None:
    upload = begin(ChecksumAlgorithm="CRC32C", ChecksumType="FULL_OBJECT")
    source = {"Bucket": upload["Bucket"], "Key": "source"}
    s3.put_object(**source, Body=FIRST + SECOND)
    copy = {**upload, "CopySource": source}
    whole = s3.upload_part_copy(**copy, PartNumber=1)["CopyPartResult"]
    some = s3.upload_part_copy(**copy, PartNumber=2, CopySourceRange="bytes=5-8")["CopyPartResult"]
    behind = {**copy, "PartNumber": 3, "CopySourceRange": f"bytes=0-{6 * MIB}"}
    assert refused(s3.upload_part_copy, **behind) == ("InvalidArgument", 400)
    parts = [{"PartNumber": 1, "ETag": whole["ETag"]}, {"PartNumber": 2, "ETag": some["ETag"]}]
    complete(s3, upload, parts)
    body = s3.get_object(Bucket=upload["Bucket"], Key="big")["Body"].read()
    assert body == FIRST + SECOND + FIRST[5:9]


def test_uploads_and_parts_are_listed(s3: Any, bucket: str) -> None:
    ids = {}
    for key in ("a/1", "a/2", "b", "b"):
        made = s3.create_multipart_upload(Bucket=bucket, Key=key)
        ids.setdefault(key, []).append(made["UploadId"])
    listed = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [prefix["Prefix"] for prefix in listed["CommonPrefixes"]] == ["a/"]
    assert sorted(u["UploadId"] for u in listed["Uploads"]) == sorted(ids["b"])
    whole = s3.list_multipart_uploads(Bucket=bucket)
    assert (whole["IsTruncated"], whole["NextKeyMarker"]) == (False, "b")
    assert whole["NextUploadIdMarker"] == max(ids["b"])
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, MaxUploads=1)
    assert [u["Key"] for page in pages for u in page["Uploads"]] == ["a/1", "a/2", "b", "b"]
    upload = {"Bucket": bucket, "Key": "a/1", "UploadId": ids["a/1"][0]}
    send(s3, upload, b"1", b"22", b"333")
    pages = s3.get_paginator("list_parts").paginate(**upload, PaginationConfig={"PageSize": 2})
    assert [part["Size"] for page in pages for part in page["Parts"]] == [1, 2, 3]


@pytest.mark.parametrize("name", ["MaxParts", "PartNumberMarker"])
def test_numbers_of_a_list_have_bounds(s3: Any, begin: Any, name: str) -> None:
    upload = begin()
    said = {"MaxParts": "max-parts", "PartNumberMarker": "part-number-marker"}[name]
    below = f"Argument {said} must be an integer between 0 and 2147483647"
    with pytest.raises(s3.exceptions.ClientError, match=below):
        s3.list_parts(**upload, **{name: -42})
    beyond = f"Provided {said} not an integer or within integer range"
    with pytest.raises(s3.exceptions.ClientError, match=beyond):
        s3.list_parts(**upload, **{name: 2**31})
    s3.list_parts(**upload, **{name: 2**31 - 1})


def test_an_encryption_is_of_the_whole_upload(server: Any, begin: Any) -> None:
    client, upload = server.client(), begin()

    def ask(request: Any, **_: Any) -> None:
        request.headers["x-amz-server-side-encryption"] = "AES256"

    client.meta.events.register("before-sign.s3", ask)
    with pytest.raises(client.exceptions.ClientError, match="not supported for this operation"):
        client.upload_part(**upload, PartNumber=1, Body=b"x")


def test_the_transfer_manager_up_down_and_across(s3: Any, bucket: str, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(30 * MIB + 17)
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(data)
    s3.upload_file(str(there), bucket, "big", ExtraArgs={"Metadata": {"a": "1"}})
    assert s3.head_object(Bucket=bucket, Key="big")["ETag"].endswith('-4"')
    s3.download_file(bucket, "big", str(back))
    assert back.read_bytes() == data
    config = TransferConfig(multipart_threshold=8 * MIB, max_concurrency=8)
    s3.copy({"Bucket": bucket, "Key": "big"}, bucket, "copy", Config=config)
    held = io.BytesIO()
    s3.download_fileobj(bucket, "copy", held)
    assert held.getvalue() == data


@pytest.mark.parametrize(
    ("kind", "stated", "suffix", "code"),
    [
        ("FULL_OBJECT", "COMPOSITE", "", "InvalidRequest"),
        ("COMPOSITE", "FULL_OBJECT", "", "InvalidRequest"),
        ("COMPOSITE", "COMPOSITE", "-7", "BadDigest"),
        ("FULL_OBJECT", "FULL_OBJECT", "-1", "BadDigest"),
    ],
)
def test_a_checksum_s_kind_and_parts_are_checked(
    s3: Any, begin: Any, refused: Refused, kind: str, stated: str, suffix: str, code: str
) -> None:
    upload = begin(ChecksumAlgorithm="CRC32", ChecksumType=kind)
    parts = send(s3, upload, SECOND, ChecksumAlgorithm="CRC32")
    crc = zlib.crc32(SECOND).to_bytes(4, "big")
    if kind == "COMPOSITE":
        crc = zlib.crc32(crc).to_bytes(4, "big")
    value = base64.b64encode(crc).decode()
    finish = {**upload, "MultipartUpload": {"Parts": parts}, "ChecksumType": stated}
    answer = refused(s3.complete_multipart_upload, **finish, ChecksumCRC32=value + suffix)
    assert answer == (code, 400)
    complete(s3, upload, parts, ChecksumCRC32=value, ChecksumType=kind)


def test_a_composite_checksum_needs_those_of_all_parts(s3: Any, begin: Any) -> None:
    upload = begin(ChecksumAlgorithm="SHA256", ChecksumType="COMPOSITE")
    parts = send(s3, upload, FIRST, SECOND, ChecksumAlgorithm="SHA256")
    second = {name: parts[1][name] for name in ("PartNumber", "ETag")}
    with pytest.raises(s3.exceptions.ClientError) as caught:
        complete(s3, upload, [parts[0], second])
    error = caught.value.response["Error"]
    assert error["Code"] == "InvalidRequest"
    assert error["Message"] == (
        "The upload was created using a sha256 checksum. The complete request must include the "
        "checksum for each part. It was missing for part 2 in the request."
    )
    complete(s3, upload, parts)


def test_the_object_s_size_is_compared(s3: Any, begin: Any) -> None:
    upload = begin()
    parts = send(s3, upload, SECOND)
    computed = f"header value 5 does not match what was computed: {len(SECOND)}"
    with pytest.raises(s3.exceptions.ClientError, match=f"InvalidRequest.*{computed}"):
        complete(s3, upload, parts, MpuObjectSize=5)
    with pytest.raises(s3.exceptions.ClientError, match=r"InvalidRequest.*object-size"):
        complete(s3, upload, parts, MpuObjectSize=-1)
    complete(s3, upload, parts, MpuObjectSize=len(SECOND))


def test_an_upload_without_an_algorithm_gets_the_default_checksum(
    s3: Any, begin: Any, refused: Refused
) -> None:
    upload = begin()
    first = s3.upload_part(**upload, PartNumber=1, Body=FIRST, ChecksumAlgorithm="CRC32C")
    second = s3.upload_part(**upload, PartNumber=2, Body=SECOND, ChecksumAlgorithm="SHA256")
    digest = hashlib.sha256(SECOND).digest()
    assert base64.b64decode(second["ChecksumSHA256"]) == digest, "the client's is answered"
    wrong = {**upload, "PartNumber": 2, "ChecksumSHA256": base64.b64encode(bytes(32)).decode()}
    assert refused(s3.upload_part, **wrong, Body=SECOND) == ("BadDigest", 400)
    assert all("ChecksumCRC64NVME" not in part for part in s3.list_parts(**upload)["Parts"])
    parts = [
        {"PartNumber": 1, "ETag": first["ETag"]},
        {"PartNumber": 2, "ETag": second["ETag"]},
    ]
    assert refused(complete, s3=s3, upload=upload, parts=parts, ChecksumType="FULL_OBJECT") == (
        "InvalidRequest",
        400,
    )
    answer = complete(s3, upload, parts)
    whole = s3.put_object(
        Bucket=upload["Bucket"], Key="k", Body=FIRST + SECOND, ChecksumAlgorithm="CRC64NVME"
    )
    assert answer["ChecksumCRC64NVME"] == whole["ChecksumCRC64NVME"]
    assert answer["ChecksumType"] == "FULL_OBJECT"


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_a_part_has_its_checksum(s3: Any, begin: Any, kind: str) -> None:
    upload = begin(ChecksumAlgorithm="CRC32C", ChecksumType=kind)
    parts = send(s3, upload, FIRST, SECOND, ChecksumAlgorithm="CRC32C")
    complete(s3, upload, parts)
    target = {"Bucket": upload["Bucket"], "Key": "big", "ChecksumMode": "ENABLED"}
    for read in (s3.head_object, s3.get_object):
        found = read(**target, PartNumber=2)
        expected = parts[1]["ChecksumCRC32C"] if kind == "COMPOSITE" else None
        assert found.get("ChecksumCRC32C") == expected
        assert found.get("ChecksumType") == (kind if expected else None)
        assert "ChecksumCRC32C" not in read(**target, Range="bytes=0-4")
    attributes = s3.get_object_attributes(
        Bucket=upload["Bucket"], Key="big", ObjectAttributes=["ObjectParts"]
    )
    assert ("Parts" in attributes["ObjectParts"]) == (kind == "COMPOSITE")


def test_the_only_part_has_the_object_s_checksum(s3: Any, begin: Any) -> None:
    upload = begin(ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    parts = send(s3, upload, SECOND, ChecksumAlgorithm="CRC32")
    complete(s3, upload, parts)
    found = s3.get_object(Bucket=upload["Bucket"], Key="big", PartNumber=1, ChecksumMode="ENABLED")
    assert found["ChecksumCRC32"] == parts[0]["ChecksumCRC32"]
