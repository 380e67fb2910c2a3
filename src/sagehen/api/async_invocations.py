"""InvokeEndpointAsync, on a way of its own: it is called as often as InvokeEndpoint is.

scope → who signed it → parameters → queue, on disk → 202
"""

import hashlib
import logging
import uuid

import msgspec
from starlette.types import Receive, Scope, Send

from sagehen.api.asgi import request_head
from sagehen.api.async_intake import Intake, NewRequest
from sagehen.api.async_parameters import LONGEST_BODY_BYTES, endpoint_in_path, read_parameters
from sagehen.api.request_body import BodyBudget, BodyTooLarge, ClientGone
from sagehen.clock import Clock
from sagehen.domain.asynchronous import AsyncRequest
from sagehen.domain.ordered_ids import ordered_id
from sagehen.errors import Unavailable
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request
from sagehen.wire.runtime_faults import unavailable, validation_error
from sagehen.wire.serialize import serialize_error
from sagehen.wire.services import service
from sagehen.wire.sigv4 import Verifier

__all__ = ["AsyncInvocations", "invokes_asynchronously"]

log = logging.getLogger(__name__)

SIGNED_SERVICE = "sagemaker"

_TOO_LARGE = validation_error(
    f"Body has more than {LONGEST_BODY_BYTES} bytes. Put it into S3, and give its place as "
    "InputLocation."
)
_Fields = list[tuple[bytes, bytes]]


def invokes_asynchronously(scope: Scope) -> bool:
    """Whether it is InvokeEndpointAsync. An object of a bucket called `endpoints` may have such a
    path, and S3 posts with a query."""
    return (
        scope["method"] == "POST"
        and b"upload" not in scope["query_string"]
        and endpoint_in_path(scope["raw_path"].decode("latin-1")) is not None
    )


class AsyncInvocations:
    """The ASGI application of one operation."""

    def __init__(
        self, verifier: Verifier, intake: Intake, clock: Clock, bodies: BodyBudget
    ) -> None:
        self._bodies = bodies
        self._verifier = verifier
        self._intake = intake
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(uuid.uuid4())
        try:
            head = request_head(scope)
            self._verifier.check_head(head, SIGNED_SERVICE)
            async with self._bodies.read(receive, LONGEST_BODY_BYTES) as body:
                accepted = await self._accept(head, body, request_id)
        except ClientGone:
            return
        except BodyTooLarge:
            await _refuse(send, _TOO_LARGE, request_id)
        except AwsError as error:
            await _refuse(send, error, request_id)
        except Unavailable as error:
            await _refuse(send, unavailable(str(error)), request_id)
        except Exception:
            log.exception("A request was not queued.", extra={"action": "queue", "id": request_id})
            failure = AwsError(
                "InternalFailure", "We encountered an internal error. Please try again.", 500
            )
            await _refuse(send, failure, request_id)
        else:
            await _tell(send, accepted)

    async def _accept(self, head: Request, body: bytes, request_id: str) -> AsyncRequest:
        now = self._clock.now()
        digest = hashlib.sha256(body).hexdigest()
        # As of InvokeEndpoint: what a prediction is made from may be left open.
        self._verifier.verify(head, digest, now, service=SIGNED_SERVICE, unsigned_body=True)
        name = endpoint_in_path(head.raw_path) or ""
        params = read_parameters(name, head.headers, body)
        inference_id = params.get("InferenceId") or ordered_id(now)
        return await self._intake.put(NewRequest(request_id, inference_id, now, params))


async def _tell(send: Send, accepted: AsyncRequest) -> None:
    output = accepted.output
    fields = [
        (b"content-type", b"application/json"),
        (b"x-amzn-requestid", accepted.request_id.encode()),
        (b"x-amzn-sagemaker-outputlocation", output.location.encode()),
    ]
    if output.failure_location is not None:
        fields.append((b"x-amzn-sagemaker-failurelocation", output.failure_location.encode()))
    await _send(send, 202, fields, msgspec.json.encode({"InferenceId": accepted.inference_id}))


async def _refuse(send: Send, error: AwsError, request_id: str) -> None:
    response = serialize_error(service("sagemaker-runtime"), None, error, request_id)
    fields = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    assert isinstance(response.body, bytes)
    await _send(send, response.status, fields, response.body)


async def _send(send: Send, status: int, fields: _Fields, body: bytes) -> None:
    fields.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
