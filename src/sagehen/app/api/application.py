"""Answers all requests that no gateway answers.

scope → Request → who signed it → which service ─┬─ s3: body streams → s3.app
                                                 └─ others: read → match → parse → validate
                                                    → operation → serialize

A coroutine operation runs in the event loop, any other in a thread. InvokeEndpointAsync and the
unsigned paths of the Async-Inference-Service have their own handlers.
"""

import asyncio
import hashlib
import inspect
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from sqlalchemy.exc import OperationalError
from starlette.types import ASGIApp, Receive, Scope, Send

from sagehen.base.concurrency import first_of
from sagehen.base.errors import Unavailable
from sagehen.frame.asgi import (
    BodyBudget,
    BodyTooLarge,
    ClientGone,
    request_head,
    stream_body,
    whole_response,
)
from sagehen.frame.context import AsyncOperation, Operation, RequestContext
from sagehen.frame.own_paths.access import OwnSite
from sagehen.services.autoscaling import operations as autoscaling
from sagehen.services.identity import iam, sts
from sagehen.services.messaging.events import operations as eventbridge
from sagehen.services.messaging.sns import operations as sns
from sagehen.services.messaging.sns.confirmation import LINKED, looks_like_link
from sagehen.services.messaging.sqs import operations as sqs
from sagehen.services.monitoring.alarms import operations as alarms
from sagehen.services.monitoring.cloudwatch import operations as cloudwatch
from sagehen.services.monitoring.logs import operations as cloudwatch_logs
from sagehen.services.s3.app import handle
from sagehen.services.s3.forms.uploads import handle_form, is_form
from sagehen.services.sagemaker import operations as sagemaker
from sagehen.services.sagemaker.async_inference.invocations import invokes_asynchronously
from sagehen.state.database import describe_outage
from sagehen.state.deadlocks import retry_deadlocks
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, Response, decompressed
from sagehen.wire.match import likely_model, match, not_implemented, unsigned_by_design
from sagehen.wire.parse import parse
from sagehen.wire.scope import Signing, error_family, likely_service, signing_of
from sagehen.wire.serialize import serialize, serialize_error
from sagehen.wire.signatures import errors as refusals
from sagehen.wire.signatures.sigv4 import Identity, Verifier
from sagehen.wire.validation.validate import validate

__all__ = ["OPERATIONS", "Application"]

log = logging.getLogger(__name__)

MakeCall = Callable[[str], RequestContext]
MayAnswer = Callable[[Scope, Receive, Send], Awaitable[bool]]
"""returns False if the request is for another handler"""

OWN_PREFIX = "/_sagehen/"

LARGEST_CONTROL_BODY_BYTES = 4 * 2**20
"""except S3's; far above any operation's limits"""

LARGEST_UNSIGNED_FORM_BYTES = 32 * 1024
"""forms with a SAML assertion, which STS takes unsigned on AWS"""

UNSIGNED_FORMS_BYTES = 2**23
"""for all such forms, at most a quarter of the budget: slow senders must not use up the memory"""

_TOO_LARGE = AwsError(
    "RequestEntityTooLargeException",
    f"The request body is over {LARGEST_CONTROL_BODY_BYTES} bytes.",
    413,
)


class Application:
    """Answers the operations of every service."""

    def __init__(
        self,
        operations: Mapping[str, Mapping[str, Operation | AsyncOperation]],
        verifier: Verifier,
        make_call: MakeCall,
        own_paths: ASGIApp,
        asynchronous: ASGIApp,
        inference: MayAnswer,
        site: OwnSite,
        bodies: BodyBudget,
    ) -> None:
        self._operations = operations
        self._verifier = verifier
        self._make_call = make_call
        self._own_paths = own_paths
        self._asynchronous = asynchronous
        self._inference = inference
        self._site = site
        self._bodies = bodies
        self._unsigned = bodies.part(
            min(UNSIGNED_FORMS_BYTES, bodies.max_bytes // 4),
            "Too many unsigned requests come at once. Try again in a moment.",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(OWN_PREFIX):
            await self._own_paths(scope, receive, send)
            return
        if invokes_asynchronously(scope):
            await self._asynchronous(scope, receive, send)
            return
        if await self._inference(scope, receive, send):
            return
        request = request_head(scope)
        request_id = str(uuid.uuid4())
        try:
            response = await self._answer(request, receive, request_id)
        except ClientGone:
            return
        if isinstance(response.body, bytes):
            await whole_response(response, request.method)(scope, receive, send)
        else:
            await _send_stream(response, response.body, receive, send)

    async def _answer(self, request: Request, receive: Receive, request_id: str) -> Response:
        try:
            if looks_like_link(request):
                return await self._operate(request, "sns", None, request_id, receive)
            if is_form(request):
                call = self._make_call(request_id)
                return await handle_form(request, stream_body(receive), call, self._verifier)
            service = likely_service(request)
            if service == "s3":
                identity = self._verifier.verify(request, None, service=service)
                call = self._make_call(request_id)
                return await handle(request, stream_body(receive), call, identity)
            bodies, largest = self._bodies_of(request, service)
            async with bodies.read(receive, largest) as body:
                complete = replace(request, body=body)
                return await self._answer_whole(complete, service, receive, request_id)
        except BodyTooLarge:
            return serialize_error(likely_model(request), None, _TOO_LARGE, request_id)
        except AwsError as error:
            return serialize_error(likely_model(request), None, error, request_id)
        except ClientGone:
            raise
        except (Unavailable, OperationalError) as error:
            model, message = likely_model(request), describe_outage(error)
            if isinstance(error, OperationalError):
                extra = {"action": "state_away", "id": request_id}
                log.warning("The state is away: %s", error.orig, extra=extra)
                if looks_like_link(request):  # which anybody may send
                    message = "The state cannot be reached now. Try again later."
            error_response = AwsError("ServiceUnavailable", message, 503)
            return serialize_error(model, None, error_response, request_id)
        except Exception:
            log.exception("An operation failed.", extra={"action": "answer", "id": request_id})
            model = likely_model(request)
            code = "InternalError" if model.service_name == "s3" else "InternalFailure"
            error_response = AwsError(
                code, "We encountered an internal error. Please try again.", 500
            )
            return serialize_error(model, None, error_response, request_id)

    def _bodies_of(self, request: Request, service: str) -> tuple[BodyBudget, int]:
        """Chooses the memory budget and size limit of the body.

        No memory is held for senders who cannot have signed: raises AwsError if the head shows
        that.
        """
        if signing_of(request) is Signing.NOWHERE and service == "sts":
            return self._unsigned, LARGEST_UNSIGNED_FORM_BYTES
        self._verifier.check_head(request)
        return self._bodies, LARGEST_CONTROL_BODY_BYTES

    async def _answer_whole(
        self, request: Request, service: str, receive: Receive, request_id: str
    ) -> Response:
        if operation := unsigned_by_design(request):
            raise not_implemented("sts", operation)
        digest = hashlib.sha256(request.body).hexdigest()
        identity = self._verifier.verify(request, digest, service=service)
        request = decompressed(request, LARGEST_CONTROL_BODY_BYTES)
        return await self._operate(request, identity.service, identity, request_id, receive)

    def _check_site(self, request: Request) -> None:
        """Raises AwsError for a foreign host, a sign of DNS rebinding."""
        reason = self._site.foreign_host(request.headers)
        if reason is not None:
            message = f"This is refused without a signature: {reason}."
            raise AwsError("AuthorizationError", message, 403)

    async def _operate(
        self,
        request: Request,
        service: str,
        identity: Identity | None,
        request_id: str,
        receive: Receive,
    ) -> Response:
        """`identity` is None if unsigned, which only `LINKED` operations allow."""
        model, operation = match(request, service)
        try:
            if identity is None:
                if (model.service_name, operation.name) not in LINKED:
                    raise refusals.missing(error_family(service))
                self._check_site(request)
            call = replace(
                self._make_call(request_id),
                by_link=identity is None,
                trace_header=_trace_header(request),
            )
            act = self._operations.get(model.service_name, {}).get(operation.name)
            if act is None:
                raise not_implemented(model.service_name, operation.name)
            params = parse(request, operation)
            validate(operation, params)
            result = await _run_operation(act, call, params, receive)
            response = serialize(operation, result, request_id)
            if call.warnings:
                response.headers["x-sagehen-warning"] = "; ".join(call.warnings)
            return response
        except AwsError as error:
            return serialize_error(model, operation, error, request_id)


def _trace_header(request: Request) -> str | None:
    """Leaves out what later requests could not have as a header."""
    header = request.headers.get("x-amzn-trace-id", "")
    return header if header and header.isascii() and header.isprintable() else None


async def _run_operation(
    act: Operation | AsyncOperation, call: RequestContext, params: dict[str, Any], receive: Receive
) -> dict[str, Any]:
    """Runs an operation; raises ClientGone if the client leaves during a coroutine."""
    if not inspect.iscoroutinefunction(act):
        # Operations and loops lock rows in different orders.
        operate = partial(cast("Operation", act), call, params)
        return await asyncio.to_thread(retry_deadlocks, operate)
    answer, _ = await first_of(cast("AsyncOperation", act)(call, params), _disconnected(receive))
    if answer is None:
        raise ClientGone
    return answer.result()


async def _send_stream(
    response: Response, body: AsyncIterator[bytes], receive: Receive, send: Send
) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.headers.items()
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await _relay(body, receive, send)


async def _relay(body: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    disconnected = asyncio.create_task(_disconnected(receive))
    try:
        async for chunk in body:
            if disconnected.done():
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        disconnected.cancel()
        if isinstance(body, AsyncGenerator):
            await body.aclose()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


OPERATIONS: Mapping[str, Mapping[str, Operation | AsyncOperation]] = {
    "application-autoscaling": autoscaling.OPERATIONS,
    "cloudwatch": {**cloudwatch.OPERATIONS, **alarms.OPERATIONS},
    "events": eventbridge.OPERATIONS,
    "iam": iam.OPERATIONS,
    "logs": cloudwatch_logs.OPERATIONS,
    "sagemaker": sagemaker.OPERATIONS,
    "sns": sns.OPERATIONS,
    "sqs": sqs.OPERATIONS,
    "sts": sts.OPERATIONS,
}
