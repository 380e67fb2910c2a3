"""Every operation that control answers, by service; S3's are in `api.s3`, which streams."""

from collections.abc import Mapping

from sagehen.api import cloudwatch_logs, eventbridge, iam, sagemaker, sns, sqs, sts
from sagehen.api.call import AsyncOperation, Operation
from sagehen.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH

__all__ = ["OPERATIONS"]

OPERATIONS: Mapping[str, Mapping[str, Operation | AsyncOperation]] = {
    "cloudwatch": CLOUDWATCH,
    "events": eventbridge.OPERATIONS,
    "iam": iam.OPERATIONS,
    "logs": cloudwatch_logs.OPERATIONS,
    "sagemaker": sagemaker.OPERATIONS,
    "sns": sns.OPERATIONS,
    "sqs": sqs.OPERATIONS,
    "sts": sts.OPERATIONS,
}
