"""Ranges and conditions on reads."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest

Refused = Callable[..., tuple[str, int]]
DATA = bytes(range(256)) * 4000


@pytest.fixture
def target(s3: Any, bucket: str) -> dict[str, str]:
    """Where an object of 1,024,000 known bytes is."""
    s3.put_object(Bucket=bucket, Key="k", Body=DATA, ChecksumAlgorithm="SHA256")
    return {"Bucket": bucket, "Key": "k"}


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("bytes=1023990-", 1023990, 1023999),
        ("bytes=-3", 1023997, 1023999),
        ("bytes=-99999999", 0, 1023999),
        ("bytes=10-99999999", 10, 1023999),
    ],
)
def test_a_range_is_a_part(
    s3: Any, target: dict[str, str], asked: str, first: int, last: int
) -> None:
    answer = s3.get_object(**target, Range=asked, ChecksumMode="ENABLED")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert answer["ContentRange"] == f"bytes {first}-{last}/{len(DATA)}"
    assert answer["Body"].read() == DATA[first : last + 1]
    assert "ChecksumSHA256" not in answer
    assert s3.head_object(**target, Range=asked)["ContentLength"] == last - first + 1


@pytest.mark.parametrize("asked", ["bytes=1024000-", "bytes=-0", "bytes=1024000-1024001"])
def test_a_range_behind_the_end_is_refused(
    s3: Any, target: dict[str, str], asked: str, refused: Refused
) -> None:
    assert refused(s3.get_object, **target, Range=asked) == ("InvalidRange", 416)


@pytest.mark.parametrize(
    "asked", ["bytes=5-1", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", f"bytes=0-{'9' * 5000}"]
)
def test_what_is_no_range_is_passed_over(s3: Any, target: dict[str, str], asked: str) -> None:
    answer = s3.get_object(**target, Range=asked)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert answer["Body"].read() == DATA


def test_the_whole_has_its_checksum_when_asked(s3: Any, target: dict[str, str]) -> None:
    answer = s3.get_object(**target, ChecksumMode="ENABLED")
    assert answer["ChecksumSHA256"]
    assert answer["ChecksumType"] == "FULL_OBJECT"
    assert answer["Body"].read() == DATA


def test_conditions_on_reads(s3: Any, target: dict[str, str], refused: Refused) -> None:
    found = s3.head_object(**target)
    etag, when = found["ETag"], found["LastModified"]
    before, after = (when + datetime.timedelta(seconds=step) for step in (-1, 1))
    for read in (s3.get_object, s3.head_object):
        read(**target, IfMatch=etag, IfUnmodifiedSince=before)
        read(**target, IfMatch="*")
        read(**target, IfNoneMatch='"other"', IfModifiedSince=after)
        read(**target, IfModifiedSince=before)
        read(**target, IfUnmodifiedSince=when)
        assert refused(read, **target, IfMatch='"other"')[1] == 412
        assert refused(read, **target, IfUnmodifiedSince=before)[1] == 412
        assert refused(read, **target, IfNoneMatch=etag)[1] == 304
        assert refused(read, **target, IfModifiedSince=when)[1] == 304
        read(**target, IfModifiedSince=when + datetime.timedelta(days=1))


def test_a_part_can_be_read_by_its_number(
    s3: Any, target: dict[str, str], refused: Refused
) -> None:
    assert s3.get_object(**target, PartNumber=1)["Body"].read() == DATA
    assert refused(s3.get_object, **target, PartNumber=2)[1] == 416


def test_there_is_one_version(s3: Any, target: dict[str, str], refused: Refused) -> None:
    assert s3.head_object(**target, VersionId="null")["ContentLength"] == len(DATA)
    for read in (s3.get_object, s3.get_object_tagging, s3.get_object_acl, s3.delete_object):
        assert refused(read, **target, VersionId="nope") == ("InvalidArgument", 400)
        assert refused(read, **target, VersionId="") == ("InvalidArgument", 400)
        assert refused(read, **target, VersionId="K" * 32) == ("NoSuchVersion", 404)
    assert refused(s3.head_object, **target, VersionId="nope") == ("400", 400)
    with pytest.raises(s3.exceptions.ClientError, match=r"Invalid version id specified$"):
        s3.get_object(**target, VersionId="nope")
    source = {**target, "VersionId": "nope"}
    copy = {"Bucket": target["Bucket"], "Key": "copy", "CopySource": source}
    assert refused(s3.copy_object, **copy) == ("InvalidArgument", 400)


def test_a_read_asks_for_no_encryption(server: Any, target: dict[str, str]) -> None:
    client = server.client()

    def ask(request: Any, **_: Any) -> None:
        request.headers["x-amz-server-side-encryption"] = "AES256"

    client.meta.events.register("before-sign.s3", ask)
    with pytest.raises(client.exceptions.ClientError, match="not supported for this operation"):
        client.get_object(**target)
    with pytest.raises(client.exceptions.ClientError, match="400"):
        client.head_object(**target)


def test_a_reader_keeps_what_it_opened(s3: Any, target: dict[str, str], server: Any) -> None:
    body = s3.get_object(**target)["Body"]
    start = body.read(10)
    s3.put_object(**target, Body=b"new")
    assert start + body.read() == DATA
    assert s3.get_object(**target)["Body"].read() == b"new"
