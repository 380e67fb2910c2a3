"""Parses a request to its operation's parameters."""

from collections.abc import Callable, Mapping
from typing import Any

from sagehen.wire.bodies import read_cbor, read_json
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.query import read_query
from sagehen.wire.rest import read_rest
from sagehen.wire.services import CBOR, OperationModel
from sagehen.wire.validation.validate import invalid_code
from sagehen.wire.values import MalformedValue, UnknownMember

__all__ = ["parse"]

_ERROR_CODES = {"query": "MalformedInput", "rest-xml": "MalformedXML"}


def parse(request: Request, operation: OperationModel) -> dict[str, Any]:
    """Timestamps are datetimes in UTC. Members not sent are absent. Raises AwsError."""
    if operation.input_shape is None:
        return {}
    try:
        return _READERS[operation.service_model.protocol](request, operation)
    except UnknownMember as error:
        message = (
            f"Sagehen does not know the member '{'.'.join(error.args[1:])}' of {operation.name}, "
            "and does not ignore it. Leave it out; if AWS has it, upgrade Sagehen and its botocore."
        )
        raise AwsError(invalid_code(operation), message, 400) from None
    except MalformedValue as error:
        raise _malformed(operation, _sentence(error)) from None
    except RecursionError:
        raise _malformed(operation, "The request is nested too deeply.") from None


_READERS: Mapping[str, Callable[[Request, OperationModel], dict[str, Any]]] = {
    "json": lambda request, operation: read_json(operation.input_shape, request.body),
    CBOR: lambda request, operation: read_cbor(operation.input_shape, request.body),
    "query": read_query,
    "rest-json": read_rest,
    "rest-xml": read_rest,
}


def _malformed(operation: OperationModel, message: str) -> AwsError:
    code = _ERROR_CODES.get(operation.service_model.protocol, "SerializationException")
    return AwsError(code, message, 400)


def _sentence(error: MalformedValue) -> str:
    reason, *path = error.args
    where = f" at '{'.'.join(path)}'" if path else ""
    return f"The request cannot be read{where}: {reason}."
