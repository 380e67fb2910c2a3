"""Access control lists: refused by a bucket of today, described by one that takes them."""

from collections.abc import Callable
from typing import Any

import pytest

Refused = Callable[..., tuple[str, int]]

EVERYBODY = "http://acs.amazonaws.com/groups/global/AllUsers"
ANY_ACCOUNT = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
LOG_DELIVERY = "http://acs.amazonaws.com/groups/s3/LogDelivery"
GRANTED = {
    "private": [],
    "public-read": [(EVERYBODY, "READ")],
    "public-read-write": [(EVERYBODY, "READ"), (EVERYBODY, "WRITE")],
    "authenticated-read": [(ANY_ACCOUNT, "READ")],
    "bucket-owner-read": [],
    "bucket-owner-full-control": [],
}
NOT_SUPPORTED = ("AccessControlListNotSupported", 400)


@pytest.fixture
def open_bucket(s3: Any, bucket: str) -> str:
    """A bucket that takes access control lists, public ones too."""
    rules = [{"ObjectOwnership": "ObjectWriter"}]
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": rules})
    s3.delete_public_access_block(Bucket=bucket)
    return bucket


def groups(acl: Any) -> list[tuple[str, str]]:
    """What is granted to groups, behind what every owner has."""
    first, *others = acl["Grants"]
    assert first["Permission"] == "FULL_CONTROL"
    assert first["Grantee"]["ID"] == acl["Owner"]["ID"]
    assert {grant["Grantee"]["Type"] for grant in others} <= {"Group"}
    return [(grant["Grantee"]["URI"], grant["Permission"]) for grant in others]


@pytest.mark.parametrize("acl", ["private", "public-read", "authenticated-read"])
def test_a_new_bucket_takes_none(s3: Any, bucket: str, refused: Refused, acl: str) -> None:
    the_object = {"Bucket": bucket, "Key": "k"}
    assert refused(s3.put_object, **the_object, ACL=acl) == NOT_SUPPORTED
    assert refused(s3.create_multipart_upload, **the_object, ACL=acl) == NOT_SUPPORTED
    s3.put_object(**the_object)
    source = {"CopySource": f"{bucket}/k"}
    assert refused(s3.copy_object, Bucket=bucket, Key="copy", **source, ACL=acl) == NOT_SUPPORTED
    assert refused(s3.put_object_acl, **the_object, ACL=acl) == NOT_SUPPORTED
    assert refused(s3.put_bucket_acl, Bucket=bucket, ACL=acl) == NOT_SUPPORTED
    assert groups(s3.get_object_acl(**the_object)) == groups(s3.get_bucket_acl(Bucket=bucket)) == []


def test_the_owner_may_be_given_what_it_has(s3: Any, bucket: str, refused: Refused) -> None:
    the_object = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**the_object, ACL="bucket-owner-full-control")
    s3.put_object_acl(**the_object, ACL="bucket-owner-full-control")
    acl = s3.get_object_acl(**the_object)
    policy = {"Grants": acl["Grants"], "Owner": acl["Owner"]}
    s3.put_object_acl(**the_object, AccessControlPolicy=policy)
    policy["Grants"] = [{**acl["Grants"][0], "Permission": "READ"}]
    assert refused(s3.put_object_acl, **the_object, AccessControlPolicy=policy) == NOT_SUPPORTED
    everyone = {**the_object, "ACL": "everyone"}
    assert refused(s3.put_object, **everyone) == ("InvalidArgument", 400)
    assert refused(s3.put_object_acl, **the_object)[0] == "MissingSecurityHeader"
    missing = {"Bucket": bucket, "Key": "no", "ACL": "bucket-owner-full-control"}
    assert refused(s3.put_object_acl, **missing) == ("NoSuchKey", 404)


@pytest.mark.parametrize("acl", GRANTED)
def test_a_bucket_with_lists_describes_them(s3: Any, open_bucket: str, acl: str) -> None:
    bucket = open_bucket
    s3.put_object(Bucket=bucket, Key="put", ACL=acl)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts", ACL=acl)["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload, MultipartUpload=parts)
    s3.put_object(Bucket=bucket, Key="later")
    s3.put_object_acl(Bucket=bucket, Key="later", ACL=acl)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/put", ACL=acl)
    for key in ("put", "parts", "later", "copy"):
        assert groups(s3.get_object_acl(Bucket=bucket, Key=key)) == GRANTED[acl], key
    s3.copy_object(Bucket=bucket, Key="plain", CopySource=f"{bucket}/put")
    assert groups(s3.get_object_acl(Bucket=bucket, Key="plain")) == [], "lists are not copied"
    s3.put_bucket_acl(Bucket=bucket, ACL=acl)
    assert groups(s3.get_bucket_acl(Bucket=bucket)) == GRANTED[acl]


def test_a_list_may_be_written_out(s3: Any, open_bucket: str, refused: Refused) -> None:
    the_object = {"Bucket": open_bucket, "Key": "k"}
    s3.put_object(**the_object, ACL="public-read-write")
    acl = s3.get_object_acl(**the_object)
    policy = {"Grants": acl["Grants"], "Owner": acl["Owner"]}
    s3.put_object_acl(**the_object, ACL="private")
    s3.put_object_acl(**the_object, AccessControlPolicy=policy)
    assert groups(s3.get_object_acl(**the_object)) == GRANTED["public-read-write"]
    policy["Grants"] = [{**acl["Grants"][0], "Permission": "READ"}]
    other = {**the_object, "AccessControlPolicy": policy}
    assert refused(s3.put_object_acl, **other) == ("NotImplemented", 501)
    both = {**the_object, "ACL": "private", "AccessControlPolicy": policy}
    assert refused(s3.put_object_acl, **both) == ("UnexpectedContent", 400)
    exec_read = {**the_object, "ACL": "aws-exec-read"}
    assert refused(s3.put_object, **exec_read) == ("NotImplemented", 501)
    of_buckets = {**the_object, "ACL": "log-delivery-write"}
    assert refused(s3.put_object, **of_buckets) == ("InvalidArgument", 400)
    s3.put_bucket_acl(Bucket=open_bucket, ACL="log-delivery-write")
    logs = [(LOG_DELIVERY, "WRITE"), (LOG_DELIVERY, "READ_ACP")]
    assert groups(s3.get_bucket_acl(Bucket=open_bucket)) == logs


def test_public_lists_may_be_blocked(s3: Any, open_bucket: str, refused: Refused) -> None:
    block = {"BlockPublicAcls": True}
    s3.put_public_access_block(Bucket=open_bucket, PublicAccessBlockConfiguration=block)
    the_object = {"Bucket": open_bucket, "Key": "k"}
    s3.put_object(**the_object, ACL="private")
    denied = ("AccessDenied", 403)
    assert refused(s3.put_object, **the_object, ACL="public-read") == denied
    assert refused(s3.put_object_acl, **the_object, ACL="authenticated-read") == denied
    assert refused(s3.put_bucket_acl, Bucket=open_bucket, ACL="public-read-write") == denied


def test_lists_end_where_the_owner_is_enforced(s3: Any, open_bucket: str, refused: Refused) -> None:
    s3.put_object(Bucket=open_bucket, Key="k", ACL="public-read")
    s3.put_bucket_acl(Bucket=open_bucket, ACL="public-read")
    enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    asked = {"Bucket": open_bucket, "OwnershipControls": enforced}
    code = ("InvalidBucketAclWithObjectOwnership", 400)
    assert refused(s3.put_bucket_ownership_controls, **asked) == code
    s3.put_bucket_acl(Bucket=open_bucket, ACL="private")
    s3.put_bucket_ownership_controls(**asked)
    assert groups(s3.get_object_acl(Bucket=open_bucket, Key="k")) == []


def test_a_bucket_is_made_with_a_list_it_can_have(s3: Any, refused: Refused) -> None:
    s3.create_bucket(Bucket="acl-of-nobody-else", ACL="private")
    code = ("InvalidBucketAclWithObjectOwnership", 400)
    assert refused(s3.create_bucket, Bucket="acl-refused", ACL="public-read") == code
    preferred = {"Bucket": "acl-refused", "ObjectOwnership": "BucketOwnerPreferred"}
    code = ("InvalidBucketAclWithBlockPublicAccessError", 400)
    assert refused(s3.create_bucket, **preferred, ACL="public-read") == code
    assert refused(s3.head_bucket, Bucket="acl-refused") == ("404", 404)
    s3.create_bucket(**preferred, ACL="log-delivery-write")
    assert len(groups(s3.get_bucket_acl(Bucket="acl-refused"))) == 2
