"""The real application in this process, with each operation of each served service replaced by a
recorder: what has been carried out is what got past signatures, matching and parsing.

Parameters are not held against the models' limits here: the fewer refusals, the more would show.
Invocations go to the gateway's admission, as its dispatcher has it; the endpoint's look-up records.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast
from unittest import mock
from urllib.parse import unquote

from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from sagehen.app.api.application import Application
from sagehen.base.clock import Clock
from sagehen.frame.asgi import BodyBudget
from sagehen.frame.context import RequestContext
from sagehen.frame.own_paths.access import Guard, Metrics, OwnSite
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import ErrorFactory
from sagehen.gateway.admission.params import (
    INVOKE,
    INVOKE_STREAM,
    Operation,
    ParameterCheck,
    ParamsReader,
    read_target,
)
from sagehen.http1.fields import joined_fields
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.sagemaker.async_inference.intake import NewRequest
from sagehen.services.sagemaker.async_inference.invocations import AsyncInvocations
from sagehen.services.sagemaker.async_inference.records import AsyncRequest
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, Response
from sagehen.wire.services import SERVED, service
from sagehen.wire.signatures.sigv4 import Verifier

__all__ = ["OWN_PATH", "Answer", "Executed", "Recording", "recording"]

OWN_PATH = "/_sagehen/stacks/{name}"
"""Of the server's own paths, one that is to be signed."""


class Executed(NamedTuple):
    """An operation that was carried out."""

    service: str
    operation: str
    params: Mapping[str, Any]
    by_link: bool = False


class Answer(NamedTuple):
    status: int
    body: bytes


@dataclass
class Recording:
    """`await ask(request)` has the application answer; `executed` is what it carried out."""

    app: Application
    admissions: Mapping[str, Admission]
    """Of the gateway, by the last part of an invocation's path."""
    executed: list[Executed] = field(default_factory=list)

    async def ask(
        self, request: Request, headers: list[tuple[bytes, bytes]] | None = None
    ) -> Answer:
        """As the gateway's dispatcher has it: an invocation is admitted there, all else goes to
        control.

        Args:
            headers: in the place of the request's own, where some come more than once.
        """
        target = f"{request.raw_path}?{request.raw_query}".removesuffix("?").encode("latin-1")
        found = read_target(target)
        if found.endpoint and request.method == "POST" and "upload" not in found.query:
            admission = self.admissions.get(found.action)
            if admission is not None:
                return self._invoke(admission, target, request, headers)
        return await self._ask_control(request, headers)

    def _invoke(
        self,
        admission: Admission,
        target: bytes,
        request: Request,
        headers: list[tuple[bytes, bytes]] | None,
    ) -> Answer:
        lines = _lines(request) if headers is None else headers
        asked = SimpleNamespace(
            method=request.method.encode(),
            target=target,
            headers=lines,
            fields=joined_fields(lines),
            request_id=b"r",
        )
        try:
            admission.admit(asked, hashlib.sha256(request.body).hexdigest())
        except AwsError as error:
            return Answer(error.status or 400, error.message.encode())
        raise AssertionError("There are no endpoints.")

    async def _ask_control(
        self, request: Request, headers: list[tuple[bytes, bytes]] | None
    ) -> Answer:
        scope: Scope = {
            "type": "http",
            "method": request.method,
            "path": unquote(request.raw_path),
            "raw_path": request.raw_path.encode("latin-1"),
            "query_string": request.raw_query.encode("latin-1"),
            "root_path": "",
            "headers": _lines(request) if headers is None else headers,
        }
        body: list[Message] = [{"type": "http.request", "body": request.body}]
        sent: list[Message] = []

        async def receive() -> Message:
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, cast("Receive", receive), cast("Send", send))
        parts = [one.get("body", b"") for one in sent if one["type"] == "http.response.body"]
        return Answer(sent[0]["status"], b"".join(parts))


def _gathered(value: str) -> str:
    """A header's value without the blanks that a signature says nothing of."""
    return re.sub("[ \t]+", " ", value.strip(" \t"))


def _lines(request: Request) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()
    ]


class _Recorders:
    """What stands for operations: each notes that it was carried out, and ends there."""

    def __init__(self, executed: list[Executed]) -> None:
        self._executed = executed

    def note(self, *executed: Any) -> NoReturn:
        self._executed.append(Executed(*executed))
        raise AwsError("Recorded", "", 299)

    def operations(self, service_name: str) -> dict[str, Any]:
        def recorder(name: str) -> Any:
            async def record(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
                self.note(service_name, name, params, call.by_link)

            return record

        return {name: recorder(name) for name in service(service_name).operation_names}

    def operations_of_s3(self) -> dict[str, Any]:
        def recorder(name: str) -> Any:
            async def record(exchange: S3Exchange) -> Response:
                named = {
                    f"the header {header}": _gathered(value)
                    for header, value in exchange.headers.items()
                    if header.startswith("x-amz-")
                }
                at = {"Bucket": exchange.bucket, "Key": exchange.key}
                self.note("s3", name, {**at, **exchange.query, **named})

            return record

        return {name: recorder(name) for name in service("s3").operation_names}

    async def own_path(self, asked: OwnPathRequest) -> object:
        params = {**asked.path, **asked.query, "body": asked.body}
        self.note("execute-api", asked.method, params)


class _Intake:
    """What asynchronous invocations get to."""

    def __init__(self, recorders: _Recorders) -> None:
        self._recorders = recorders

    async def put(self, request: NewRequest) -> AsyncRequest:
        params = {
            name: _gathered(value) if isinstance(value, str) else value
            for name, value in request.params.items()
        }
        self._recorders.note("sagemaker-runtime", "InvokeEndpointAsync", params)


class _Store:
    """What a browser's form gets to; the other ways to objects end at their operations."""

    def __init__(self, recorders: _Recorders) -> None:
        self._recorders = recorders

    def __getattr__(self, name: str) -> Any:
        self._recorders.note("s3", "PostObject", {"store": name})


@contextmanager
def recording(verifier: Verifier, clock: Clock) -> Iterator[Recording]:
    """The application, until the block ends."""
    executed: list[Executed] = []
    recorders = _Recorders(executed)
    admissions = {
        "invocations": _admission(INVOKE, verifier, recorders),
        "invocations-response-stream": _admission(INVOKE_STREAM, verifier, recorders),
    }
    with (
        mock.patch("sagehen.services.s3.app.OPERATIONS", recorders.operations_of_s3()),
        mock.patch("sagehen.app.api.application.validate", return_value=None),
    ):
        yield Recording(_application(verifier, clock, recorders), admissions, executed)


def _application(verifier: Verifier, clock: Clock, recorders: _Recorders) -> Application:
    operations = {
        name: recorders.operations(name)
        for name in SERVED
        if name not in ("s3", "sagemaker-runtime")
    }
    methods = ("GET", "PUT", "DELETE")
    own_paths = Router([own_route(OWN_PATH, dict.fromkeys(methods, recorders.own_path))])
    site, bodies = OwnSite(allowed_hosts=["h"]), BodyBudget(2**30)
    intake, store = _Intake(recorders), _Store(recorders)
    return Application(
        operations,
        verifier,
        lambda request_id: _call(request_id, clock, store),
        Guard(own_paths, verifier, "the token", site, Metrics("127.0.0.1", False), bodies),
        AsyncInvocations(verifier, cast("Any", intake), clock, bodies),
        _nobody,
        site,
        bodies,
    )


def _admission(operation: Operation, verifier: Verifier, recorders: _Recorders) -> Admission:
    class Routes:
        def get(self, name: str) -> None:
            recorders.note("sagemaker-runtime", operation.name, {"EndpointName": name})

    reader = ParamsReader(operation, ParameterCheck({}, lambda params: None))
    errors = ErrorFactory("000000000000", "us-east-1")
    return Admission(
        reader, verifier, cast("Any", Routes()), cast("Any", None), errors, lambda: 0.5
    )


async def _nobody(scope: Scope, receive: Receive, send: Send) -> bool:
    return False


def _call(request_id: str, clock: Clock, objects: object) -> RequestContext:
    settings = SimpleNamespace(account_id="000000000000")
    return RequestContext(
        settings=cast("Any", settings),
        database=cast("Any", None),
        writes=cast("Any", None),
        objects=cast("Any", objects),
        clock=clock,
        arns=cast("Any", None),
        request_id=request_id,
        hint=lambda: None,
        seal=lambda envelope: envelope.message,
        arrivals=cast("Any", None),
    )
