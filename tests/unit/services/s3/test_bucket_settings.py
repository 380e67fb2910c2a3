"""Settings of buckets: today's defaults, and what deploy scripts set in passing."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from sagehen.services.s3.tables import BUCKETS

Refused = Callable[..., tuple[str, int]]

ALL_BLOCKED = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}


def encryption(s3: Any, bucket: str) -> Any:
    return s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]


def ownership(s3: Any, bucket: str) -> Any:
    rules = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    return [rule["ObjectOwnership"] for rule in rules]


def block(s3: Any, bucket: str) -> Any:
    return s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]


def test_a_new_bucket_has_the_defaults_of_today(s3: Any, bucket: str) -> None:
    assert encryption(s3, bucket) == [
        {
            "ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"},
            "BucketKeyEnabled": False,
        }
    ]
    assert block(s3, bucket) == ALL_BLOCKED
    assert ownership(s3, bucket) == ["BucketOwnerEnforced"]


def test_a_bucket_from_before_takes_lists_as_it_did(
    server: Any, s3: Any, bucket: str, refused: Refused
) -> None:
    with server.database.write() as connection:
        connection.execute(
            text(f"UPDATE {BUCKETS.name} SET settings = NULL WHERE name = :name"), {"name": bucket}
        )
    not_set = "NoSuchPublicAccessBlockConfiguration"
    assert refused(s3.get_public_access_block, Bucket=bucket) == (not_set, 404)
    not_set = "OwnershipControlsNotFoundError"
    assert refused(s3.get_bucket_ownership_controls, Bucket=bucket) == (not_set, 404)
    assert encryption(s3, bucket)[0]["BucketKeyEnabled"] is False
    s3.put_object(Bucket=bucket, Key="k", ACL="public-read")
    assert len(s3.get_object_acl(Bucket=bucket, Key="k")["Grants"]) == 2
    s3.put_bucket_ownership_controls(
        Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    )
    assert ownership(s3, bucket) == ["BucketOwnerEnforced"]


def test_ownership_is_kept(s3: Any, bucket: str, refused: Refused) -> None:
    s3.create_bucket(Bucket="owned-by-writer", ObjectOwnership="ObjectWriter")
    assert ownership(s3, "owned-by-writer") == ["ObjectWriter"]
    rules = {"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]}
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=rules)
    assert ownership(s3, bucket) == ["BucketOwnerPreferred"]
    s3.delete_bucket_ownership_controls(Bucket=bucket)
    code = ("OwnershipControlsNotFoundError", 404)
    assert refused(s3.get_bucket_ownership_controls, Bucket=bucket) == code
    odd = {"Rules": [{"ObjectOwnership": "Nobody"}]}
    asked = {"Bucket": bucket, "OwnershipControls": odd}
    assert refused(s3.put_bucket_ownership_controls, **asked) == ("MalformedXML", 400)
    asked = {"Bucket": "owned-by-nobody", "ObjectOwnership": "Nobody"}
    assert refused(s3.create_bucket, **asked) == ("InvalidArgument", 400)


def test_encryption_is_that_of_s3(s3: Any, bucket: str, refused: Refused) -> None:
    def put(**rule: Any) -> None:
        rules = {"Rules": [rule]}
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=rules)

    default = {"SSEAlgorithm": "AES256"}
    blocked = {"EncryptionType": ["SSE-C"]}
    rule = {"BucketKeyEnabled": True, "BlockedEncryptionTypes": blocked}
    put(ApplyServerSideEncryptionByDefault=default, **rule)
    assert encryption(s3, bucket) == [{"ApplyServerSideEncryptionByDefault": default, **rule}]
    for algorithm in ("aws:kms", "aws:kms:dsse"):
        by_kms = {"SSEAlgorithm": algorithm, "KMSMasterKeyID": "k"}
        with pytest.raises(s3.exceptions.ClientError, match=f"SSEAlgorithm {algorithm} is not"):
            put(ApplyServerSideEncryptionByDefault=by_kms)
        assert refused(put, ApplyServerSideEncryptionByDefault=by_kms) == ("NotImplemented", 501)
    with_key = {**default, "KMSMasterKeyID": "k"}
    assert refused(put, ApplyServerSideEncryptionByDefault=with_key) == ("InvalidArgument", 400)
    assert refused(put, BucketKeyEnabled=True) == ("MalformedXML", 400)
    s3.delete_bucket_encryption(Bucket=bucket)
    assert encryption(s3, bucket)[0]["BucketKeyEnabled"] is False


def test_the_public_access_block_is_kept(s3: Any, bucket: str, refused: Refused) -> None:
    some = {"BlockPublicAcls": True, "RestrictPublicBuckets": True}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=some)
    others = {"IgnorePublicAcls": False, "BlockPublicPolicy": False}
    assert block(s3, bucket) == {**some, **others}
    s3.delete_public_access_block(Bucket=bucket)
    code = ("NoSuchPublicAccessBlockConfiguration", 404)
    assert refused(s3.get_public_access_block, Bucket=bucket) == code


def test_buckets_have_tags(s3: Any, bucket: str, refused: Refused) -> None:
    tags = [{"Key": f"k{number}", "Value": "é + - = . _ : / @"} for number in range(50)]
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags
    more = {"TagSet": [*tags, {"Key": "more", "Value": ""}]}
    assert refused(s3.put_bucket_tagging, Bucket=bucket, Tagging=more) == ("BadRequest", 400)
    system = {"TagSet": [{"Key": "aws:x", "Value": ""}]}
    with pytest.raises(s3.exceptions.ClientError, match="System tags cannot be added"):
        s3.put_bucket_tagging(Bucket=bucket, Tagging=system)
    s3.delete_bucket_tagging(Bucket=bucket)
    assert refused(s3.get_bucket_tagging, Bucket=bucket) == ("NoSuchTagSet", 404)
    made_with = {"Tags": tags[:2]}
    s3.create_bucket(Bucket="tagged-at-once", CreateBucketConfiguration=made_with)
    assert s3.get_bucket_tagging(Bucket="tagged-at-once")["TagSet"] == tags[:2]


def test_versioning_can_be_suspended_but_not_enabled(
    s3: Any, bucket: str, refused: Refused
) -> None:
    def put(**asked: str) -> None:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=asked)

    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    put(Status="Suspended")
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"
    assert refused(put, Status="Enabled") == ("NotImplemented", 501)
    with pytest.raises(s3.exceptions.ClientError, match="PutBucketVersioning with Status Enabled"):
        put(Status="Enabled")
    assert refused(put, Status="Suspended", MFADelete="Enabled") == ("NotImplemented", 501)
    assert refused(put) == ("IllegalVersioningConfigurationException", 400)
    assert refused(put, Status="On") == ("MalformedXML", 400)


def test_settings_need_their_bucket(s3: Any, refused: Refused) -> None:
    gone = ("NoSuchBucket", 404)
    assert refused(s3.get_bucket_encryption, Bucket="no-such-bucket") == gone
    assert refused(s3.get_bucket_tagging, Bucket="no-such-bucket") == gone
    some = {"BlockPublicAcls": True}
    asked = {"Bucket": "no-such-bucket", "PublicAccessBlockConfiguration": some}
    assert refused(s3.put_public_access_block, **asked) == gone


def test_a_bucket_again_is_not_given_other_settings(s3: Any, refused: Refused) -> None:
    made = {"Bucket": "made-again", "ObjectOwnership": "ObjectWriter"}
    s3.create_bucket(**made)
    s3.create_bucket(**made)
    s3.create_bucket(Bucket="made-again")
    other = {"Bucket": "made-again", "ObjectOwnership": "BucketOwnerEnforced"}
    assert refused(s3.create_bucket, **other) == ("BucketAlreadyOwnedByYou", 409)
    assert ownership(s3, "made-again") == ["ObjectWriter"]


def test_settings_go_with_their_bucket(s3: Any, bucket: str, refused: Refused) -> None:
    tags = {"TagSet": [{"Key": "a", "Value": "1"}]}
    s3.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert refused(s3.get_bucket_tagging, Bucket=bucket) == ("NoSuchTagSet", 404)
