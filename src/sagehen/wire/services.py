"""The AWS services served, as botocore's models describe them."""

import copy
import functools
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagehen.wire.errors import AwsError

# botocore imports awscrt's signers where it finds them: 6 MiB in each process, and 60 ms, for what
# the server does not use. None stands for a module that is not installed.
if _hides_awscrt := "awscrt" not in sys.modules:
    sys.modules["awscrt"] = None  # type: ignore[assignment]
try:
    from botocore.loaders import Loader
    from botocore.model import OperationModel, ServiceModel, Shape
finally:
    if _hides_awscrt:
        del sys.modules["awscrt"]

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
    "application-autoscaling",
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
    read = _without_unknown(name, _loader().load_service_model(name, "service-2"))
    if name == "sqs":
        read = copy.deepcopy(read)
        _add_query_errors(read)
        if protocol == "query":
            _add_query_names(read)
    if protocol is None:
        return read
    return {**read, "metadata": {**read["metadata"], "protocol": protocol}}


def _without_unknown(name: str, read: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the members of inputs that only a newer botocore has: no code here reads them, so
    that the readers refuse them by name."""
    shapes: dict[str, Any] = read["shapes"]
    changed = {}
    for shape_name, known in known_members().get(name, {}).items():
        shape = shapes.get(shape_name, {"members": {}})
        members = {key: value for key, value in shape["members"].items() if key in known}
        if len(members) < len(shape["members"]):
            changed[shape_name] = {**shape, "members": members}
    return {**read, "shapes": {**shapes, **changed}} if changed else read


@functools.cache
def known_members() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Returns the members of all inputs when this version was made, by service and shape."""
    text = Path(__file__).with_name("known_members.json").read_text()
    services: dict[str, dict[str, str]] = json.loads(text)["services"]
    return {
        name: {shape: frozenset(members.split()) for shape, members in shapes.items()}
        for name, shapes in services.items()
    }


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
        f"{service_name}:{operation} is not implemented by Sagehen yet; "
        "docs/reference/operations.md lists the operations that are.",
        400,
    )


class _Loader(Loader):  # type: ignore[misc]
    """Avoids botocore's search through all of its 400 services."""

    def list_available_services(self, type_name: str) -> list[str]:
        return list(SERVED)


@functools.cache
def _loader() -> Loader:
    return _Loader()


# botocore's model of SQS lost its traits of Query when its clients left Query for JSON.


def _add_query_names(sqs: dict[str, Any]) -> None:
    """Adds the names of parameters and elements."""
    sqs["metadata"]["xmlNamespace"] = "http://queue.amazonaws.com/doc/2012-11-05/"
    shapes = sqs["shapes"]
    for name, shape in shapes.items():
        if shape["type"] == "list" and name not in _LISTS_WITHOUT_QUERY:
            singular = _IRREGULAR_SINGULARS.get(name, name.removesuffix("List"))
            shape["member"]["locationName"] = singular
        elif shape["type"] == "map":
            key, value = ("Key", "Value") if name == "TagMap" else ("Name", "Value")
            shape["key"]["locationName"], shape["value"]["locationName"] = key, value
        for member_name, member in shape.get("members", {}).items():
            if shapes[member["shape"]]["type"] == "map" or member_name.endswith("ListValues"):
                singular = member_name.removesuffix("s")
                member["locationName"] = singular[0].upper() + singular[1:]


_IRREGULAR_SINGULARS = {"BinaryList": "BinaryListValue", "StringList": "StringListValue"}
"""elements that are not named as their list is"""

_LISTS_WITHOUT_QUERY = ("ListMessageMoveTasksResultEntryList", "MessageSystemAttributeList")
"""lists younger than the change to JSON; no client sends or reads them in Query"""


def _add_query_errors(sqs: dict[str, Any]) -> None:
    """Adds codes and statuses; JSON's clients read the codes, too, from `x-amzn-query-error`."""
    for name, (code, status) in _QUERY_ERRORS.items():
        plain = {"type": "structure", "members": {}, "exception": True}
        shape = sqs["shapes"].setdefault(name, plain)
        shape["error"] = {"code": code, "httpStatusCode": status}


_QUERY_ERRORS = {
    "InvalidParameterValueException": ("InvalidParameterValue", 400),
    "MissingRequiredParameterException": ("MissingParameter", 400),
    "OverLimit": ("OverLimit", 403),
    "QueueDoesNotExist": ("AWS.SimpleQueueService.NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "PurgeQueueInProgress": ("AWS.SimpleQueueService.PurgeQueueInProgress", 403),
    **{
        name: (f"AWS.SimpleQueueService.{name}", 400)
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "QueueDeletedRecently",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
}
"""codes and statuses of errors in Query, by shape"""
