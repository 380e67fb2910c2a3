"""The AWS services served, as botocore's models describe them."""

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

PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "cloudwatch": ("json", CBOR, "query"),
    "sqs": ("json", "query"),
}
"""services with several protocols; current boto3's comes first"""


def service(name: str, protocol: str | None = None) -> ServiceModel:
    """Returns a service's model.

    Args:
        name: botocore's name.
        protocol: set as the model's `protocol`, by which requests are parsed and answered; None
            takes the service's first.

    Raises:
        AwsError: the service is not served.
    """
    if name not in SERVED:
        raise not_served(name)
    # Parallel first calls would each parse JSON for half a second.
    with _READING:
        return _model(name, protocol or next(iter(PROTOCOLS.get(name, ())), None))


_READING = threading.Lock()


@functools.cache
def _model(name: str, protocol: str | None) -> ServiceModel:
    return ServiceModel(description(name, protocol), name)


def description(name: str, protocol: str | None = None) -> dict[str, Any]:
    read: dict[str, Any] = _loader(name).load_service_model(name, "service-2")
    if protocol is None:
        return read
    return {**read, "metadata": {**read["metadata"], "protocol": protocol}}


def not_served(name: str) -> AwsError:
    """Uses the status 400, since SDKs retry many 5xx responses."""
    known = ", ".join(SERVED)
    return AwsError(
        "UnsupportedOperation",
        f'The service "{name[:64]}" is not served by Sagehen. These are: {known}.',
        400,
    )


def not_implemented(service_name: str, operation: str) -> AwsError:
    """Uses the status 400 for the same reason as `not_served`."""
    code = "NotImplemented" if service_name == "s3" else "UnsupportedOperation"
    return AwsError(
        code,
        f"{service_name}:{operation} is not implemented by Sagehen yet; docs/compatibility.md "
        "lists the operations that are.",
        400,
    )


class _Loader(Loader):  # type: ignore[misc]
    """Avoids botocore's search through all of its 400 services."""

    def list_available_services(self, type_name: str) -> list[str]:
        return list(SERVED)


def _loader(name: str) -> Loader:
    return _with_motos_extras() if name == "sqs" else _plain()


@functools.cache
def _plain() -> Loader:
    return _Loader()


@functools.cache
def _with_motos_extras() -> Loader:
    """Adds moto's SQS extras: botocore dropped the Query protocol's names and codes."""
    found = importlib.util.find_spec("moto")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("moto", name="moto")
    loader = _Loader(extra_search_paths=[str(Path(found.origin).parent)])
    loader.extras_types.append("moto")
    return loader
