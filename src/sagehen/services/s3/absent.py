"""Answers reads of settings that buckets here never have; tools inspect them. Writes are
refused."""

from collections.abc import Mapping

from sagehen.services.s3.http.exchange import Operation, S3Exchange
from sagehen.services.s3.http.xml import document, text
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response

__all__ = ["OPERATIONS"]

_MISSING = {
    "GetBucketCors": ("NoSuchCORSConfiguration", "The CORS configuration does not exist"),
    "GetBucketLifecycleConfiguration": (
        "NoSuchLifecycleConfiguration",
        "The lifecycle configuration does not exist",
    ),
    "GetBucketPolicy": ("NoSuchBucketPolicy", "The bucket policy does not exist"),
    "GetBucketReplication": (
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    "GetBucketWebsite": (
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
    "GetObjectLockConfiguration": (
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
}
_EMPTY = {
    "GetBucketAccelerateConfiguration": ("AccelerateConfiguration", ""),
    "GetBucketLogging": ("BucketLoggingStatus", ""),
    "GetBucketNotificationConfiguration": ("NotificationConfiguration", ""),
    "GetBucketRequestPayment": ("RequestPaymentConfiguration", text("Payer", "BucketOwner")),
}


def _missing(code: str, message: str) -> Operation:
    async def answer(exchange: S3Exchange) -> Response:
        await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
        raise AwsError(code, message, 404, BucketName=exchange.bucket)

    return answer


def _empty(name: str, inner: str) -> Operation:
    async def answer(exchange: S3Exchange) -> Response:
        await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
        return Response(200, {"content-type": "application/xml"}, document(name, [inner]))

    return answer


OPERATIONS: Mapping[str, Operation] = {
    **{name: _missing(*answer) for name, answer in _MISSING.items()},
    **{name: _empty(*answer) for name, answer in _EMPTY.items()},
}
