"""S3, narrow and right: what boto3, the AWS CLI and the SageMaker SDKs use, and no more."""

from sagehen.api.s3.app import handle
from sagehen.api.s3.operations import OPERATIONS

__all__ = ["OPERATIONS", "handle"]
