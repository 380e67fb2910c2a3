"""AWS::S3::Bucket."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind
from sagehen.apply.template.schema import TEXT, Read

__all__ = ["BucketKind"]


class BucketKind(ResourceKind):
    """Buckets with objects are never deleted."""

    type = "AWS::S3::Bucket"
    name_property = "BucketName"
    lower_names = True
    fixed = frozenset({"BucketName"})
    members: Mapping[str, Read] = {"BucketName": TEXT}

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
            aws.client("s3").head_bucket(Bucket=name)
        except ClientError as error:
            if code_of(error) in ("404", "NoSuchBucket"):
                return None
            raise
        return ActualState(name=name, properties={"BucketName": name})

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        where = {}
        if aws.region != "us-east-1":
            where = {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
        aws.client("s3").create_bucket(Bucket=name, **where)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        pass  # a bucket has only its name

    def delete(self, aws: Aws, name: str) -> str | None:
        try:
            aws.client("s3").delete_bucket(Bucket=name)
        except ClientError as error:
            if code_of(error) == "BucketNotEmpty":
                return f"The bucket {name} is not empty, and stays as it is."
            if code_of(error) != "NoSuchBucket":
                raise
        return None
