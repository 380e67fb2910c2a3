"""AWS::S3::Bucket."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind, tag_changes
from sagehen.apply.template.schema import TEXT, Read, keyed_tags

__all__ = ["BucketKind"]


class BucketKind(ResourceKind):
    """Buckets with objects are never deleted."""

    type = "AWS::S3::Bucket"
    name_property = "BucketName"
    lower_names = True
    fixed = frozenset({"BucketName"})
    members: Mapping[str, Read] = {"BucketName": TEXT, "Tags": keyed_tags}

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        domain = destination.url_suffix
        return {
            "Ref": name,
            "Arn": f"arn:{destination.partition}:s3:::{name}",
            "DomainName": f"{name}.s3.{domain}",
            "DualStackDomainName": f"{name}.s3.dualstack.{destination.region}.{domain}",
            "RegionalDomainName": f"{name}.s3.{destination.region}.{domain}",
            "WebsiteURL": f"http://{name}.s3-website-{destination.region}.{domain}",
        }

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        try:
            tags = aws.client("s3").get_bucket_tagging(Bucket=name)["TagSet"]
        except ClientError as error:
            if code_of(error) == "NoSuchBucket":
                return None
            if code_of(error) != "NoSuchTagSet":
                raise
            tags = []
        return ActualState(name=name, properties={"BucketName": name, "Tags": tags})

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        where = {}
        if aws.region != "us-east-1":
            where = {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
        aws.client("s3").create_bucket(Bucket=name, **where)
        if properties.get("Tags"):
            tagging = {"TagSet": properties["Tags"]}
            aws.client("s3").put_bucket_tagging(Bucket=name, Tagging=tagging)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        changed, removed_keys = tag_changes(actual, before, after)
        if not changed and not removed_keys:
            return
        tags = {tag["Key"]: tag for tag in [*actual.properties["Tags"], *changed]}
        # S3 has no call that changes one tag: the set is replaced.
        tag_set = [tag for key, tag in tags.items() if key not in removed_keys]
        aws.client("s3").put_bucket_tagging(Bucket=actual.name, Tagging={"TagSet": tag_set})

    def delete(self, aws: Aws, name: str) -> str | None:
        try:
            aws.client("s3").delete_bucket(Bucket=name)
        except ClientError as error:
            if code_of(error) == "BucketNotEmpty":
                return f"The bucket {name} is not empty, and stays as it is."
            if code_of(error) != "NoSuchBucket":
                raise
        return None
