"""Parses a request to its operation's parameters."""

from typing import Any

from sagehen.wire.cbor_body import read_cbor
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.json_body import read_json
from sagehen.wire.services import CBOR, OperationModel
from sagehen.wire.values import MalformedValue

__all__ = ["parse"]

_CODES = {"query": "MalformedInput", "rest-xml": "MalformedXML"}


def parse(request: Request, operation: OperationModel) -> dict[str, Any]:
    """Timestamps are datetimes in UTC. Members not sent are absent. Raises AwsError."""
    shape = operation.input_shape
    if shape is None:
        return {}
    protocol = operation.service_model.protocol
    try:
        if protocol == "json":
            return read_json(shape, request.body)
        if protocol == CBOR:
            return read_cbor(shape, request.body)
        from sagehen.wire.parsers import read_with_moto

        return read_with_moto(request, operation)
    except MalformedValue as error:
        raise AwsError(_CODES.get(protocol, "SerializationException"), _say(error), 400) from None
    except RecursionError:
        why = "The request is nested too deeply."
        raise AwsError(_CODES.get(protocol, "SerializationException"), why, 400) from None


def _say(error: MalformedValue) -> str:
    why, *path = error.args
    where = f" at '{'.'.join(path)}'" if path else ""
    return f"The request cannot be read{where}: {why}."
