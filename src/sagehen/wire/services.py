"""The AWS services that are served, as botocore's models describe them."""

import functools
from typing import Any

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape

from sagehen.wire.faults import AwsError

__all__ = [
    "SERVED",
    "OperationModel",
    "ServiceModel",
    "Shape",
    "description",
    "not_implemented",
    "not_served",
    "service",
]

SERVED = ("iam", "s3", "sagemaker", "sagemaker-runtime", "sts")


@functools.cache
def service(name: str) -> ServiceModel:
    """The model of a service, by botocore's name for it.

    Raises:
        AwsError: it is not served.
    """
    if name not in SERVED:
        raise not_served(name)
    return ServiceModel(description(name), name)


def description(name: str) -> dict[str, Any]:
    """What a model is made from."""
    read: dict[str, Any] = _loader().load_service_model(name, "service-2")
    return read


def not_served(name: str) -> AwsError:
    """What a request to a whole service that is not there is answered.

    The status is 400: SDKs repeat a request on many a 5xx, and nothing is won by that here.
    """
    known = ", ".join(SERVED)
    return AwsError(
        "UnsupportedOperation",
        f'The service "{name[:64]}" is not served by Sagehen. These are: {known}.',
        400,
    )


def not_implemented(service_name: str, operation: str) -> AwsError:
    """What an operation that AWS has and Sagehen has not yet is answered; 400 as above.

    The code is `NotImplemented` for S3, which has that code itself, and `UnsupportedOperation` for
    the others.
    """
    code = "NotImplemented" if service_name == "s3" else "UnsupportedOperation"
    return AwsError(
        code,
        f"{service_name}:{operation} is not implemented by Sagehen yet; docs/compatibility.md "
        "lists the operations that are.",
        400,
    )


@functools.cache
def _loader() -> Loader:
    return Loader()
