"""Every operation that control answers, by service; S3's are in `api.s3`, which streams."""

from collections.abc import Mapping

from sagehen.api import iam, sagemaker, sts
from sagehen.api.call import Operation
from sagehen.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH

__all__ = ["OPERATIONS"]

OPERATIONS: Mapping[str, Mapping[str, Operation]] = {
    "cloudwatch": CLOUDWATCH,
    "iam": iam.OPERATIONS,
    "sagemaker": sagemaker.OPERATIONS,
    "sts": sts.OPERATIONS,
}
