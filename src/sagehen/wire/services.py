"""The AWS services that are served, as botocore's models describe them."""

import functools
import importlib.util
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape

from sagehen.wire.errors import AwsError

__all__ = [
    "CBOR",
    "PROTOCOLS",
    "SERVED",
    "OperationModel",
    "ServiceModel",
    "Shape",
    "description",
    "not_implemented",
    "not_served",
    "service",
]

SERVED = (
    "cloudwatch",
    "events",
    "iam",
    "logs",
    "s3",
    "sagemaker",
    "sagemaker-runtime",
    "sns",
    "sqs",
    "sts",
)

CBOR = "smithy-rpc-v2-cbor"
"""botocore's name of that protocol."""

PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "cloudwatch": ("json", CBOR, "query"),
    "sqs": ("json", "query"),
}
"""The protocols of a service that has several, the one that today's boto3 speaks first."""


def service(name: str, protocol: str | None = None) -> ServiceModel:
    """The model of a service, by botocore's name for it.

    Args:
        protocol: the one that it is spoken to in; where None, the first one. It is the model's
            own `protocol`: everything that reads or answers a request goes by that.

    Raises:
        AwsError: it is not served.
    """
    if name not in SERVED:
        raise not_served(name)
    # Whoever comes first after a start would each read half a second's JSON.
    with _READING:
        return _model(name, protocol or next(iter(PROTOCOLS.get(name, ())), None))


_READING = threading.Lock()


@functools.cache
def _model(name: str, protocol: str | None) -> ServiceModel:
    return ServiceModel(description(name, protocol), name)


def description(name: str, protocol: str | None = None) -> dict[str, Any]:
    """What a model is made from."""
    read: dict[str, Any] = _loader(name).load_service_model(name, "service-2")
    if protocol is None:
        return read
    return {**read, "metadata": {**read["metadata"], "protocol": protocol}}


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


class _Loader(Loader):  # type: ignore[misc]
    """botocore's, but that it does not look through all of its 400 services to find one."""

    def list_available_services(self, type_name: str) -> list[str]:
        return list(SERVED)


def _loader(name: str) -> Loader:
    return _with_motos_extras() if name == "sqs" else _plain()


@functools.cache
def _plain() -> Loader:
    return _Loader()


@functools.cache
def _with_motos_extras() -> Loader:
    """botocore's model of SQS lost the names and codes of its Query protocol when its clients
    learned JSON; moto has kept them, as additions to that model."""
    found = importlib.util.find_spec("moto")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("moto", name="moto")
    loader = _Loader(extra_search_paths=[str(Path(found.origin).parent)])
    loader.extras_types.append("moto")
    return loader
