"""Objects come back as they were sent, by a real client."""

import base64
import hashlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import requests

Refused = Callable[..., tuple[str, int]]

ODD_KEYS = [
    "plain.txt",
    "a//b",
    "/leading",
    "trailing/",
    "dots/../up",
    "./.",
    "spaces and +plus%20",
    "größe/東京/🦊",
    "q?x=1&y#z",
    "back\\slash'\"<>&",
    "new\nline\ttab\rreturn",
    "~!@$^*()_=:;,[]{}|`",
    "k" * 1024,
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_key_is_a_key(s3: Any, bucket: str, key: str) -> None:
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert [o["Key"] for o in s3.list_objects(Bucket=bucket)["Contents"]] == [key]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}, {"Key": "copy"}]})
    assert sorted(found["Key"] for found in gone["Deleted"]) == sorted([key, "copy"])
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_key_has_a_longest_length(s3: Any, bucket: str, refused: Refused) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key="é" * 513) == ("KeyTooLongError", 400)


def test_what_is_said_of_an_object_is_kept(s3: Any, bucket: str) -> None:
    said = {
        "CacheControl": "max-age=5",
        "ContentDisposition": 'attachment; filename="x"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "ContentType": "text/csv",
        "Metadata": {"city": "Houston", "empty": ""},
        "StorageClass": "STANDARD_IA",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "some-key",
        "WebsiteRedirectLocation": "/other",
    }
    answer = s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1&b=", **said)
    assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"]) == ("aws:kms", "some-key")
    found = s3.head_object(Bucket=bucket, Key="k")
    assert {name: found[name] for name in said} == said
    assert found["TagCount"] == 2
    assert found["ETag"] == f'"{hashlib.md5(b"x").hexdigest()}"'


def test_the_defaults_are_those_of_s3(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    found = s3.get_object(Bucket=bucket, Key="k")
    assert found["ContentType"] == "binary/octet-stream"
    assert found["ContentLength"] == 0
    assert found["AcceptRanges"] == "bytes"
    assert "StorageClass" not in found
    assert found["ServerSideEncryption"] == "AES256"


@pytest.mark.parametrize("upload", ["put_object", "create_multipart_upload", "copy_object"])
@pytest.mark.parametrize(
    ("storage_class", "code"),
    [
        ("GLACIER", "NotImplemented"),
        ("DEEP_ARCHIVE", "NotImplemented"),
        ("OUTPOSTS", "InvalidStorageClass"),
    ],
)
def test_storage_classes_whose_objects_could_not_be_read(
    s3: Any, bucket: str, upload: str, storage_class: str, code: str
) -> None:
    s3.put_object(Bucket=bucket, Key="source")
    more = {"CopySource": f"{bucket}/source"} if upload == "copy_object" else {}
    with pytest.raises(s3.exceptions.ClientError) as caught:
        getattr(s3, upload)(Bucket=bucket, Key="k", StorageClass=storage_class, **more)
    error = caught.value.response["Error"]
    assert error["Code"] == code
    assert storage_class in error["Message"] + error.get("StorageClassRequested", "")


@pytest.mark.parametrize("form", ["put", "link", "form"])
def test_an_upload_without_a_checksum_gets_the_default_one(
    server: Any, bucket: str, form: str
) -> None:
    s3 = server.client(request_checksum_calculation="when_required")
    target, data = {"Bucket": bucket, "Key": "k"}, b"test data.."
    if form == "put":
        assert s3.put_object(**target, Body=data)["ChecksumCRC64NVME"] == "qUVrWYOrIAM="
    elif form == "link":
        link = s3.generate_presigned_url("put_object", Params=target)
        assert requests.put(link, data=data, timeout=60).status_code == 200
    else:
        post = s3.generate_presigned_post(**target)
        files = {"file": data}
        sent = requests.post(post["url"], data=post["fields"], files=files, timeout=60)
        assert sent.headers["x-amz-checksum-crc64nvme"] == "qUVrWYOrIAM="
    found = s3.head_object(**target, ChecksumMode="ENABLED")
    assert (found["ChecksumCRC64NVME"], found["ChecksumType"]) == ("qUVrWYOrIAM=", "FULL_OBJECT")


def test_a_key_of_kms_needs_kms(s3: Any, bucket: str, refused: Refused) -> None:
    asked = {"Bucket": bucket, "Key": "k", "SSEKMSKeyId": "some-key"}
    invalid = ("InvalidArgument", 400)
    for write in (s3.put_object, s3.create_multipart_upload):
        assert refused(write, **asked) == invalid
        assert refused(write, **asked, ServerSideEncryption="AES256") == invalid
    context = {**asked, "ServerSideEncryption": "aws:kms", "SSEKMSEncryptionContext": "e30="}
    assert refused(s3.put_object, **context) == ("NotImplemented", 501)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("=?UTF-8?B?YWJj?=", "abc"),
        ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
        ("=?UTF-8?Q?=C3=84?=", "=?UTF-8?Q?=C3=84?="),
        ("=?UTF-8?B?AAECAw==?=", "=?UTF-8?B?AAECAw==?="),
        ("=?nonsense?B?YWJj?=", "=?nonsense?B?YWJj?="),
        ("=?UTF-8?B?Y?=", "=?UTF-8?B?Y?="),
    ],
)
def test_encoded_words_of_metadata_are_decoded(s3: Any, bucket: str, sent: str, kept: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Metadata={"a": sent})
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"a": kept}


def test_a_wrong_md5_is_told_with_the_right_one(s3: Any, bucket: str) -> None:
    right, wrong = (
        base64.b64encode(hashlib.md5(data).digest()).decode() for data in (b"right", b"wrong")
    )
    target = {"Bucket": bucket, "Key": "k", "Body": b"right"}
    with pytest.raises(s3.exceptions.ClientError, match="BadDigest") as caught:
        s3.put_object(**target, ContentMD5=wrong)
    error = caught.value.response["Error"]
    assert (error["ExpectedDigest"], error["CalculatedDigest"]) == (wrong, right)
    with pytest.raises(s3.exceptions.ClientError, match="InvalidDigest") as caught:
        s3.put_object(**target, ContentMD5="MTIz")
    assert caught.value.response["Error"]["Content-MD5"] == "MTIz"


def test_metadata_has_a_limit(s3: Any, bucket: str, refused: Refused) -> None:
    s3.put_object(Bucket=bucket, Key="k", Metadata={"a": "b" * 2047})
    too_much = {"a": "b" * 2048}
    assert refused(s3.put_object, Bucket=bucket, Key="k", Metadata=too_much)[0] == (
        "MetadataTooLarge"
    )


def test_missing_things_have_their_codes(s3: Any, bucket: str, refused: Refused) -> None:
    assert refused(s3.get_object, Bucket=bucket, Key="no") == ("NoSuchKey", 404)
    assert refused(s3.head_object, Bucket=bucket, Key="no") == ("404", 404)
    assert refused(s3.get_object, Bucket="no-such", Key="no") == ("NoSuchBucket", 404)
    assert refused(s3.put_object, Bucket="no-such", Key="no", Body=b"x") == ("NoSuchBucket", 404)
    big = io.BytesIO(bytes(600_000))
    assert refused(s3.put_object, Bucket="no-such", Key="no", Body=big) == ("NoSuchBucket", 404)
    s3.put_object(Bucket=bucket, Key="the connection is", Body=b"still in step")
    s3.delete_object(Bucket=bucket, Key="no")


def test_a_delete_names_what_it_deleted_unless_quiet(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a")
    quiet = {"Objects": [{"Key": "a"}], "Quiet": True}
    assert "Deleted" not in s3.delete_objects(Bucket=bucket, Delete=quiet)
    conditional = {"Objects": [{"Key": "a", "ETag": "x"}]}
    with pytest.raises(s3.exceptions.ClientError, match="ETag in DeleteObjects"):
        s3.delete_objects(Bucket=bucket, Delete=conditional)
    odd = {"Objects": [{"Key": "a", "VersionId": "v1"}]}
    assert s3.delete_objects(Bucket=bucket, Delete=odd)["Errors"] == [
        {
            "Key": "a",
            "VersionId": "v1",
            "Code": "NoSuchVersion",
            "Message": "The specified version does not exist.",
        }
    ]


def test_at_most_a_thousand_are_deleted_at_once(s3: Any, bucket: str, refused: Refused) -> None:
    keys = [{"Key": f"{number}"} for number in range(1001)]
    assert refused(s3.delete_objects, Bucket=bucket, Delete={"Objects": keys})[0] == "MalformedXML"
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[:1000]})["Deleted"]) == 1000


def test_conditional_writes(s3: Any, bucket: str, refused: Refused) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    again = {"Bucket": bucket, "Key": "k", "Body": b"2"}
    assert refused(s3.put_object, **again, IfNoneMatch="*") == ("PreconditionFailed", 412)
    etag = s3.put_object(**again, IfMatch=etag)["ETag"]
    assert refused(s3.put_object, **again, IfMatch='"other"') == ("PreconditionFailed", 412)
    assert refused(s3.put_object, Bucket=bucket, Key="no", IfMatch=etag) == ("NoSuchKey", 404)
    assert refused(s3.delete_object, Bucket=bucket, Key="k", IfMatch='"other"')[1] == 412
    s3.delete_object(Bucket=bucket, Key="k", IfMatch=etag)


@pytest.mark.parametrize(
    ("conditions", "header"),
    [
        ({"IfMatch": "*"}, "If-Match"),
        ({"IfNoneMatch": '"x"'}, "If-None-Match"),
        ({"IfMatch": "x", "IfNoneMatch": "*"}, "If-Match,If-None-Match"),
    ],
)
def test_conditions_that_writes_do_not_take(
    s3: Any, bucket: str, conditions: dict[str, str], header: str
) -> None:
    target = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**target, Body=b"old")
    copy = {"CopySource": target, "MetadataDirective": "REPLACE"}
    for write, more in ((s3.put_object, {"Body": b"new"}), (s3.copy_object, copy)):
        with pytest.raises(s3.exceptions.ClientError) as caught:
            write(**target, **more, **conditions)
        error = caught.value.response["Error"]
        assert (error["Code"], error["Header"]) == ("NotImplemented", header)
    assert s3.get_object(**target)["Body"].read() == b"old"
    if "IfNoneMatch" not in conditions:
        s3.delete_object(**target, **conditions)


def test_a_control_character_is_a_key_too(s3: Any, bucket: str) -> None:
    # No XML 1.0 can say this name, so it is listed in URL form and deleted by its path.
    s3.put_object(Bucket=bucket, Key="bell\x07", Body=b"x")
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["bell\x07"]
    s3.delete_object(Bucket=bucket, Key="bell\x07")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_the_owner_is_compared(s3: Any, bucket: str, refused: Refused) -> None:
    s3.head_bucket(Bucket=bucket, ExpectedBucketOwner="000000000000")
    other = {"Bucket": bucket, "Key": "k", "ExpectedBucketOwner": "111111111111"}
    assert refused(s3.put_object, **other) == ("AccessDenied", 403)
    for account in ("abcd", "0000", "0000000000020", "aa000000000$"):
        malformed = {**other, "ExpectedBucketOwner": account}
        assert refused(s3.put_object, **malformed) == ("InvalidBucketOwnerAWSAccountID", 400)


def test_a_lock_that_is_not_there_is_not_bypassed(s3: Any, bucket: str, refused: Refused) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    for value in (True, False):
        bypass = {"Bucket": bucket, "BypassGovernanceRetention": value}
        assert refused(s3.delete_object, Key="k", **bypass) == ("InvalidArgument", 400)
        objects = {"Objects": [{"Key": "k"}]}
        assert refused(s3.delete_objects, Delete=objects, **bypass) == ("InvalidArgument", 400)
    s3.head_object(Bucket=bucket, Key="k")


def test_tags_without_a_set_are_none(server: Any, bucket: str) -> None:
    s3 = server.client(parameter_validation=False)
    s3.put_object(Bucket=bucket, Key="k", Tagging="a=b")
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": None})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []


def test_an_owner_has_an_id_only(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    listed = s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"]
    for owner in (s3.list_buckets()["Owner"], listed[0]["Owner"]):
        assert {*owner} == {"ID"}


def test_tags(s3: Any, bucket: str, refused: Refused) -> None:
    s3.put_object(Bucket=bucket, Key="k", Tagging="city=New%20York")
    tags = [{"Key": "city", "Value": "New York"}]
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags
    tags = [{"Key": f"k{n}", "Value": "é + - = . _ : / @"} for n in range(10)]
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tags})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    more = {"TagSet": [*tags, {"Key": "one more", "Value": ""}]}
    assert refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=more)[1] == 400
    twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
    assert refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=twice)[0] == "InvalidTag"
    assert refused(s3.get_object_tagging, Bucket=bucket, Key="no")[0] == "NoSuchKey"
    system = {"TagSet": [{"Key": "aws:x", "Value": ""}]}
    for key, value in (("Key1,Key2", "a"), ("Key1", "Val1,Val2"), ("<", "a"), ("a", "&")):
        odd = {"TagSet": [{"Key": key, "Value": value}]}
        assert refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=odd) == (
            "InvalidTag",
            400,
        )
        assert refused(s3.put_bucket_tagging, Bucket=bucket, Tagging=odd) == ("InvalidTag", 400)
    for header in ("key1=val1,key2=val2", "a,b=c", "key1=val1&key1=val2"):
        with pytest.raises(s3.exceptions.ClientError, match=r"InvalidArgument.*'x-amz-tagging'"):
            s3.put_object(Bucket=bucket, Key="k", Tagging=header)
    with pytest.raises(s3.exceptions.ClientError, match="Your TagKey cannot be prefixed with aws:"):
        s3.put_object_tagging(Bucket=bucket, Key="k", Tagging=system)
