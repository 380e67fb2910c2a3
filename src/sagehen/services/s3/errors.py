"""Translates object store errors to S3's, and defines S3's own refusals."""

from collections.abc import Iterator
from contextlib import contextmanager

from sagehen.base.errors import SagehenError, Unavailable
from sagehen.services.s3.storage import errors as faults
from sagehen.wire.errors import AwsError

__all__ = [
    "header_not_implemented",
    "invalid_argument",
    "invalid_request",
    "malformed_xml",
    "not_implemented",
    "speaking_s3",
]

_ANSWERS: dict[type[SagehenError], tuple[str, int, str | None]] = {
    faults.NoSuchBucket: ("NoSuchBucket", 404, "The specified bucket does not exist"),
    faults.NoSuchKey: ("NoSuchKey", 404, "The specified key does not exist."),
    faults.NoSuchUpload: (
        "NoSuchUpload",
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have "
        "been aborted or completed.",
    ),
    faults.BucketNotEmpty: (
        "BucketNotEmpty",
        409,
        "The bucket you tried to delete is not empty",
    ),
    faults.BadCompletion: ("InvalidRequest", 400, None),
    faults.BadPart: ("InvalidPart", 400, None),
    faults.BadPartOrder: ("InvalidPartOrder", 400, None),
    faults.PartTooSmall: (
        "EntityTooSmall",
        400,
        "Your proposed upload is smaller than the minimum allowed size",
    ),
    faults.DigestMismatch: ("BadDigest", 400, None),
    faults.KeyNotStorable: ("InvalidArgument", 400, None),
    faults.NotSupported: ("NotImplemented", 501, None),
    Unavailable: ("ServiceUnavailable", 503, None),
}


@contextmanager
def speaking_s3(bucket: str, key: str, upload_id: str = "") -> Iterator[None]:
    try:
        yield
    except faults.ConditionFailed as error:
        raise AwsError(
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold",
            412,
            Condition=str(error),
        ) from error
    except faults.ConditionConflict as error:
        raise AwsError(
            "ConditionalRequestConflict",
            "The conditional request cannot succeed due to a conflicting operation against this "
            "resource.",
            409,
            Condition=str(error),
            Key=key,
        ) from error
    except SagehenError as error:
        for kind in type(error).__mro__:
            if kind in _ANSWERS:
                code, status, message = _ANSWERS[kind]
                names: dict[str, dict[str, object]] = {
                    "BucketNotEmpty": {"BucketName": bucket},
                    "InvalidPart": {"UploadId": upload_id, **_part_members(error)},
                    "InvalidPartOrder": {"UploadId": upload_id},
                    "EntityTooSmall": _part_members(error),
                    "NoSuchBucket": {"BucketName": bucket},
                    "NoSuchKey": {"Key": key},
                    "NoSuchUpload": {"UploadId": upload_id},
                }
                raise AwsError(
                    code, message or str(error), status, **names.get(code, {})
                ) from error
        raise


def _part_members(error: SagehenError) -> dict[str, object]:
    if isinstance(error, faults.PartTooSmall):
        return {
            "PartNumber": error.number,
            "ETag": error.etag,
            "ProposedSize": error.size,
            "MinSizeAllowed": error.least,
        }
    if isinstance(error, faults.BadPart):
        return {"PartNumber": error.number, "ETag": error.etag}
    return {}


def invalid_argument(message: str, name: str, value: str) -> AwsError:
    return AwsError("InvalidArgument", message, 400, ArgumentName=name, ArgumentValue=value)


def invalid_request(message: str) -> AwsError:
    return AwsError("InvalidRequest", message, 400)


def malformed_xml() -> AwsError:
    return AwsError(
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
        400,
    )


def header_not_implemented(name: str, details: str) -> AwsError:
    """Raised for headers that S3 refuses, too."""
    return AwsError(
        "NotImplemented",
        "A header you provided implies functionality that is not implemented",
        501,
        Header=name,
        additionalMessage=details,
    )


def not_implemented(feature: str) -> AwsError:
    """SDKs do not retry status 501."""
    return AwsError("NotImplemented", f"{feature} is not implemented by Sagehen's S3.", 501)
