"""Buckets: their names, lives and settings."""

from collections.abc import Callable
from typing import Any

import pytest

Refused = Callable[..., tuple[str, int]]


def test_a_bucket_lives(s3: Any, refused: Refused) -> None:
    name = "a-bucket.that-lives"
    created = s3.create_bucket(Bucket=name)
    arn = f"arn:aws:s3:::{name}"
    assert (created["Location"], created["BucketArn"]) == (f"/{name}", arn)
    s3.create_bucket(Bucket=name)
    head = s3.head_bucket(Bucket=name)
    assert (head["BucketRegion"], head["BucketArn"]) == ("us-east-1", arn)
    assert head["ResponseMetadata"]["HostId"]
    assert s3.list_buckets(Prefix=name)["Buckets"][0]["BucketArn"] == arn
    assert head["ResponseMetadata"]["HTTPHeaders"]["content-type"] == "application/xml"
    assert s3.get_bucket_location(Bucket=name)["LocationConstraint"] is None
    assert name in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    s3.put_object(Bucket=name, Key="k")
    with pytest.raises(s3.exceptions.ClientError, match="not empty") as caught:
        s3.delete_bucket(Bucket=name)
    assert caught.value.response["Error"]["BucketName"] == name
    s3.delete_object(Bucket=name, Key="k")
    s3.delete_bucket(Bucket=name)
    assert refused(s3.head_bucket, Bucket=name) == ("404", 404)
    assert refused(s3.delete_bucket, Bucket=name) == ("NoSuchBucket", 404)


@pytest.mark.parametrize(
    "name",
    ["Capital", "under_score", "a..b", "-a-", "192.168.1.1", "xn--abc", "foo-.bar", "foo.-bar"],
)
def test_names_have_rules(s3: Any, name: str, refused: Refused) -> None:
    assert refused(s3.create_bucket, Bucket=name) == ("InvalidBucketName", 400)


def test_buckets_are_listed_in_pages(s3: Any) -> None:
    for number in range(3):
        s3.create_bucket(Bucket=f"paged-{number}")
    pages = s3.get_paginator("list_buckets").paginate(
        Prefix="paged-", PaginationConfig={"PageSize": 2}
    )
    found = [bucket["Name"] for page in pages for bucket in page["Buckets"]]
    assert found == ["paged-0", "paged-1", "paged-2"]


def test_buckets_of_a_region(s3: Any, bucket: str, refused: Refused) -> None:
    assert s3.list_buckets(BucketRegion="us-east-1", Prefix=bucket)["Buckets"]
    assert s3.list_buckets(BucketRegion="eu-west-1", Prefix=bucket)["Buckets"] == []
    assert refused(s3.list_buckets, BucketRegion="nope") == ("InvalidArgument", 400)
    assert s3.list_buckets(Prefix="a\x01")["Buckets"] == []


def test_the_api_of_directory_buckets_is_refused_by_name(s3: Any) -> None:
    with pytest.raises(s3.exceptions.ClientError, match="ListDirectoryBuckets") as caught:
        s3.list_directory_buckets()
    assert caught.value.response["Error"]["Code"] == "NotImplemented"


def test_the_location_is_checked(s3: Any, make_s3: Any, refused: Refused) -> None:
    def asked(client: Any, where: str | None) -> Any:
        more = {"CreateBucketConfiguration": {"LocationConstraint": where}} if where else {}
        return refused(client.create_bucket, Bucket="somewhere", **more)[0]

    illegal = "IllegalLocationConstraintException"
    assert asked(s3, "eu-central-1") == illegal
    assert asked(s3, "us-east-1") == "InvalidLocationConstraint"
    assert asked(s3, "foo") == "InvalidLocationConstraint"
    assert asked(s3, "EU") == illegal
    elsewhere = make_s3(region="eu-west-1").client()
    assert asked(elsewhere, None) == illegal
    there = {"LocationConstraint": "eu-west-1"}
    elsewhere.create_bucket(Bucket="somewhere", CreateBucketConfiguration=there)
    assert asked(elsewhere, "eu-west-1") == "BucketAlreadyOwnedByYou"
    assert elsewhere.get_bucket_location(Bucket="somewhere")["LocationConstraint"] == "eu-west-1"
    assert asked(elsewhere, "foo") == illegal
    first_name = {"LocationConstraint": "EU"}
    elsewhere.create_bucket(Bucket="old-world", CreateBucketConfiguration=first_name)
    assert elsewhere.get_bucket_location(Bucket="old-world")["LocationConstraint"] == "EU"
    assert elsewhere.head_bucket(Bucket="old-world")["BucketRegion"] == "eu-west-1"


def test_settings_that_are_not_there_read_as_not_set(
    s3: Any, bucket: str, refused: Refused
) -> None:
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    s3.get_bucket_logging(Bucket=bucket)
    for read, code in {
        s3.get_bucket_cors: "NoSuchCORSConfiguration",
        s3.get_bucket_lifecycle_configuration: "NoSuchLifecycleConfiguration",
        s3.get_bucket_policy: "NoSuchBucketPolicy",
        s3.get_bucket_tagging: "NoSuchTagSet",
    }.items():
        assert refused(read, Bucket=bucket) == (code, 404)


def test_what_is_not_there_is_refused_by_name(s3: Any, bucket: str, refused: Refused) -> None:
    answer = refused(s3.put_bucket_policy, Bucket=bucket, Policy="{}")
    assert answer == ("NotImplemented", 501)
    with pytest.raises(s3.exceptions.ClientError, match="PutBucketPolicy is not implemented"):
        s3.put_bucket_policy(Bucket=bucket, Policy="{}")
    with pytest.raises(s3.exceptions.ClientError, match="GetObjectTorrent"):
        s3.get_object_torrent(Bucket=bucket, Key="k")
    with pytest.raises(s3.exceptions.ClientError, match="x-amz-object-lock-mode"):
        s3.put_object(Bucket=bucket, Key="k", ObjectLockMode="GOVERNANCE")
    with pytest.raises(s3.exceptions.ClientError, match="server-side-encryption-customer"):
        s3.put_object(
            Bucket=bucket, Key="k", SSECustomerKey="0" * 32, SSECustomerAlgorithm="AES256"
        )
