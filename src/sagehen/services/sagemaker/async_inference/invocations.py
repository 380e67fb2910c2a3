"""The ASGI application for InvokeEndpointAsync, which is called as often as InvokeEndpoint.

scope → signature → parameters → queue, on disk → 202

Parameters are checked here: botocore checks next to nothing of them.
"""

import hashlib
import logging
import os
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from sqlalchemy.exc import OperationalError
from starlette.types import Receive, Scope, Send

from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid, Unavailable
from sagehen.frame.asgi import BodyBudget, BodyTooLarge, ClientGone, request_head, whole_response
from sagehen.frame.s3_locations import parse_location
from sagehen.services.sagemaker.async_inference.intake import AsyncIntake, NewRequest
from sagehen.services.sagemaker.async_inference.records import AsyncRequest
from sagehen.state.database import describe_outage
from sagehen.wire.errors import AwsError, unavailable, validation_error
from sagehen.wire.http import Request, Response
from sagehen.wire.serialize import serialize_error
from sagehen.wire.services import service
from sagehen.wire.signatures.sigv4 import Verifier
from sagehen.wire.validation.validate import validate
from sagehen.wire.values import MalformedValue, as_meant, integer

__all__ = [
    "LONGEST_BODY_BYTES",
    "AsyncInvocations",
    "endpoint_in_path",
    "invokes_asynchronously",
    "ordered_id",
    "read_parameters",
]

log = logging.getLogger(__name__)

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
    """Returns None for another path."""
    if not (raw_path.startswith(_BEFORE_NAME) and raw_path.endswith(_BEHIND_NAME)):
        return None
    name = raw_path[len(_BEFORE_NAME) : -len(_BEHIND_NAME)]
    return None if not name or "/" in name else unquote(name)


def read_parameters(endpoint_name: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Returns the given members by their names in the model.

    Raises:
        AwsError: ValidationError.
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
    except MalformedValue as error:
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
    location = params["InputLocation"]
    try:
        has_key = bool(parse_location(location).key)
    except Invalid:
        has_key = False
    if not has_key:
        raise validation_error(
            f"InputLocation {location} is not the address of an object in S3: s3://bucket/key."
        )


def _check_extension(extension: str) -> None:
    """Refuses keys that S3 takes but that mislead programs which turn keys into paths."""
    if {".", ".."} & set(extension.split("/")):
        raise validation_error(
            f"S3OutputPathExtension {extension} must not have the segments `.` and `..`."
        )


_RANDOM_BYTES = 10
_VERSION = 7 << 76
_VARIANT = 2 << 62
_VERSION_BITS = 15 << 76
_VARIANT_BITS = 3 << 62


def ordered_id(now: float) -> str:
    """Returns a new UUID version 7 (RFC 9562), made at `now` (seconds since the epoch).

    It sorts by age, so that a new row goes to the end of an index: with a million rows, an insert
    with a random id was four times as slow.
    """
    milliseconds = int(now * 1000) & (1 << 48) - 1
    number = milliseconds << 80 | int.from_bytes(os.urandom(_RANDOM_BYTES))
    number = number & ~_VERSION_BITS | _VERSION
    return str(uuid.UUID(int=number & ~_VARIANT_BITS | _VARIANT))


SIGNED_SERVICE = "sagemaker"

_TOO_LARGE = (
    f"Body has more than {LONGEST_BODY_BYTES} bytes. Put it into S3, and give its address as "
    "InputLocation."
)


def invokes_asynchronously(scope: Scope) -> bool:
    """Excludes uploads by POST to a bucket named `endpoints`, whose paths may look the same."""
    return (
        scope["method"] == "POST"
        and b"upload" not in scope["query_string"]
        and endpoint_in_path(scope["raw_path"].decode("latin-1")) is not None
    )


class AsyncInvocations:
    """The ASGI application of one operation."""

    def __init__(
        self, verifier: Verifier, intake: AsyncIntake, clock: Clock, bodies: BodyBudget
    ) -> None:
        self._bodies = bodies
        self._verifier = verifier
        self._intake = intake
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(uuid.uuid4())
        try:
            response = await self._answer(scope, receive, request_id)
        except ClientGone:
            return
        except AwsError as error:
            response = serialize_error(service("sagemaker-runtime"), None, error, request_id)
        await whole_response(response)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, request_id: str) -> Response:
        try:
            head = request_head(scope)
            self._verifier.check_head(head, SIGNED_SERVICE)
            async with self._bodies.read(receive, LONGEST_BODY_BYTES) as body:
                return _accepted(await self._accept(head, body, request_id))
        except (ClientGone, AwsError):
            raise
        except BodyTooLarge:
            raise validation_error(_TOO_LARGE) from None
        except (Unavailable, OperationalError) as error:
            log.warning("A request was not queued: %s", error, extra={"action": "queue"})
            raise unavailable(describe_outage(error)) from None
        except Exception:
            log.exception("A request was not queued.", extra={"action": "queue", "id": request_id})
            raise AwsError(
                "InternalFailure", "We encountered an internal error. Please try again.", 500
            ) from None

    async def _accept(self, head: Request, body: bytes, request_id: str) -> AsyncRequest:
        now = self._clock.now()
        digest = hashlib.sha256(body).hexdigest()
        # As for InvokeEndpoint, the body may be unsigned.
        self._verifier.verify(head, digest, now, service=SIGNED_SERVICE, unsigned_body=True)
        name = endpoint_in_path(head.raw_path) or ""
        params = read_parameters(name, head.headers, body)
        inference_id = params.get("InferenceId") or ordered_id(now)
        return await self._intake.put(NewRequest(request_id, inference_id, now, params))


def _accepted(accepted: AsyncRequest) -> Response:
    output = accepted.output
    headers = {
        "content-type": "application/json",
        "x-amzn-requestid": accepted.request_id,
        "x-amzn-sagemaker-outputlocation": output.location,
    }
    if output.failure_location is not None:
        headers["x-amzn-sagemaker-failurelocation"] = output.failure_location
    body = msgspec.json.encode({"InferenceId": accepted.inference_id})
    return Response(202, headers, body)
