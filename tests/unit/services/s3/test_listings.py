"""Listings: order, folding, pages, encodings."""

import random
from collections.abc import Callable
from typing import Any

import pytest

Refused = Callable[..., tuple[str, int]]
KEYS = ["A", "a", "a/b/1", "a/b/2", "a/c", "b", "z", "é", "東", "\uffee", "🦊"]


@pytest.fixture
def filled(s3: Any, bucket: str) -> str:
    for key in random.Random(1).sample(KEYS, len(KEYS)):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


@pytest.mark.parametrize("name", ["list_objects", "list_objects_v2"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_pages_give_all_keys_in_the_order_of_their_bytes(
    s3: Any, filled: str, name: str, size: int
) -> None:
    pages = s3.get_paginator(name).paginate(Bucket=filled, PaginationConfig={"PageSize": size})
    found = [item["Key"] for page in pages for item in page["Contents"]]
    assert found == sorted(KEYS, key=str.encode)


@pytest.mark.parametrize("name", ["list_objects", "list_objects_v2"])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_folded_pages(s3: Any, filled: str, name: str, size: int) -> None:
    pages = s3.get_paginator(name).paginate(
        Bucket=filled, Delimiter="/", PaginationConfig={"PageSize": size}
    )
    names = []
    for page in pages:
        names += [item["Key"] for item in page.get("Contents", [])]
        names += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
    assert sorted(names) == sorted(["A", "a", "a/", "b", "z", "é", "東", "\uffee", "🦊"])


def test_a_prefix_narrows(s3: Any, filled: str) -> None:
    page = s3.list_objects_v2(Bucket=filled, Prefix="a/", Delimiter="/")
    assert [item["Key"] for item in page["Contents"]] == ["a/c"]
    assert [item["Prefix"] for item in page["CommonPrefixes"]] == ["a/b/"]
    assert (page["KeyCount"], page["Prefix"], page["Delimiter"]) == (2, "a/", "/")


def test_start_after(s3: Any, filled: str) -> None:
    page = s3.list_objects_v2(Bucket=filled, StartAfter="a/b/1", MaxKeys=2)
    assert [item["Key"] for item in page["Contents"]] == ["a/b/2", "a/c"]
    assert page["IsTruncated"]
    assert page["StartAfter"] == "a/b/1"
    token = page["NextContinuationToken"]
    rest = s3.list_objects_v2(Bucket=filled, StartAfter="a/b/1", ContinuationToken=token)
    assert rest["Contents"][0]["Key"] == "b"
    assert "StartAfter" not in rest


def test_what_an_entry_tells(s3: Any, filled: str) -> None:
    (entry,) = s3.list_objects_v2(Bucket=filled, Prefix="東", FetchOwner=True)["Contents"]
    head = s3.head_object(Bucket=filled, Key="東")
    assert entry["Size"] == 3
    assert (entry["ETag"], entry["LastModified"]) == (head["ETag"], head["LastModified"])
    assert entry["StorageClass"] == "STANDARD"
    assert entry["ChecksumAlgorithm"] == ["CRC32"]
    assert len(entry["Owner"]["ID"]) == 64
    assert "Owner" in s3.list_objects(Bucket=filled)["Contents"][0]


def test_bounds_and_bad_values(s3: Any, filled: str, refused: Refused) -> None:
    assert s3.list_objects_v2(Bucket=filled, MaxKeys=0)["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket=filled, MaxKeys=9999)["MaxKeys"] == 1000
    bad: list[dict[str, Any]] = [{"MaxKeys": -1}, {"MaxKeys": 2**31}, {"EncodingType": "base9"}]
    bad += [{"ContinuationToken": token} for token in ("?", "")]
    for more in bad:
        assert refused(s3.list_objects_v2, Bucket=filled, **more) == ("InvalidArgument", 400)
    assert refused(s3.list_objects_v2, Bucket="no-such") == ("NoSuchBucket", 404)


def test_each_object_is_its_only_version(s3: Any, filled: str) -> None:
    pages = s3.get_paginator("list_object_versions").paginate(
        Bucket=filled, PaginationConfig={"PageSize": 3}
    )
    versions = [version for page in pages for version in page["Versions"]]
    assert [version["Key"] for version in versions] == sorted(KEYS, key=str.encode)
    assert {version["VersionId"] for version in versions} == {"null"}
