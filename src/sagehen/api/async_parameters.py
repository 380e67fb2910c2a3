"""What InvokeEndpointAsync is asked: read from its head and held against the service model.

botocore checks next to nothing of it.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from sagehen.domain.locations import parse_location
from sagehen.errors import Invalid
from sagehen.wire.runtime_faults import validation_error
from sagehen.wire.services import service
from sagehen.wire.validate import validate
from sagehen.wire.values import Malformed, as_meant, integer

__all__ = ["LONGEST_BODY_BYTES", "endpoint_in_path", "read_parameters"]

_OPERATION = service("sagemaker-runtime").operation_model("InvokeEndpointAsync")
_MEMBERS = _OPERATION.input_shape.members
_HEADERS = tuple(
    (member.serialization["name"].lower(), name, member.type_name)
    for name, member in _MEMBERS.items()
    if member.serialization.get("location") == "header"
)
_BEFORE_NAME, _, _BEHIND_NAME = _OPERATION.http["requestUri"].partition("{EndpointName}")

LONGEST_BODY_BYTES: int = _MEMBERS["Body"].metadata["max"]


def endpoint_in_path(raw_path: str) -> str | None:
    """The endpoint that a path invokes asynchronously; None where it is another path."""
    if not (raw_path.startswith(_BEFORE_NAME) and raw_path.endswith(_BEHIND_NAME)):
        return None
    name = raw_path[len(_BEFORE_NAME) : -len(_BEHIND_NAME)]
    return None if not name or "/" in name else unquote(name)


def read_parameters(endpoint_name: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The operation's members that were given, by their names in the model.

    Raises:
        AwsError: ValidationError for a value that the operation does not take.
    """
    params: dict[str, Any] = {"EndpointName": endpoint_name}
    for header, name, kind in _HEADERS:
        value = headers.get(header)
        if value is not None:
            params[name] = as_meant(value) if kind == "string" else _whole(name, value)
    if body:
        params["Body"] = body
    validate(_OPERATION, params)
    _check_input(params)
    _check_extension(params.get("S3OutputPathExtension", ""))
    return params


def _whole(name: str, value: str) -> int:
    try:
        return integer(value, "integer")
    except Malformed as error:
        raise validation_error(f"{name} cannot be read: {error}.") from None


def _check_input(params: Mapping[str, Any]) -> None:
    if ("Body" in params) == ("InputLocation" in params):
        how_many = "both" if "Body" in params else "neither"
        raise validation_error(
            "InvokeEndpointAsync needs either InputLocation or a Body that is not empty; this "
            f"request has {how_many}."
        )
    if "InputLocation" not in params:
        return
    given = params["InputLocation"]
    try:
        has_key = bool(parse_location(given).key)
    except Invalid:
        has_key = False
    if not has_key:
        raise validation_error(
            f"InputLocation {given} is not the address of an object in S3: s3://bucket/key."
        )


def _check_extension(extension: str) -> None:
    """S3 would take such a key; whatever makes paths of keys must not be led astray by it."""
    if {".", ".."} & set(extension.split("/")):
        raise validation_error(
            f"S3OutputPathExtension {extension} must not have the segments `.` and `..`."
        )
