"""The real application in this process, with each operation of each served service replaced by a
recorder: what has been carried out is what got past signatures, matching and parsing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from sagehen.api.app import Application
from sagehen.api.async_intake import NewRequest
from sagehen.api.async_invocations import AsyncInvocations
from sagehen.api.call import Call
from sagehen.api.s3.exchange import Exchange
from sagehen.api.signed_paths import Asked, signed_route
from sagehen.clock import Clock
from sagehen.domain.asynchronous import AsyncRequest
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request, Response
from sagehen.wire.services import SERVED, service
from sagehen.wire.sigv4 import Verifier

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
    executed: list[Executed] = field(default_factory=list)

    async def ask(
        self, request: Request, headers: list[tuple[bytes, bytes]] | None = None
    ) -> Answer:
        """
        Args:
            headers: in the place of the request's own, where some come more than once.
        """
        if headers is None:
            headers = [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in request.headers.items()
            ]
        scope: Scope = {
            "type": "http",
            "method": request.method,
            "path": request.raw_path,
            "raw_path": request.raw_path.encode("latin-1"),
            "query_string": request.raw_query.encode("latin-1"),
            "root_path": "",
            "headers": headers,
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


@contextmanager
def recording(verifier: Verifier, clock: Clock) -> Iterator[Recording]:
    """The application, until the block ends."""
    executed: list[Executed] = []

    def operation(service_name: str, name: str) -> Any:
        async def record(call: Call, params: dict[str, Any]) -> dict[str, Any]:
            executed.append(Executed(service_name, name, params, call.by_link))
            raise AwsError("Recorded", "", 299)

        return record

    def of_s3(name: str) -> Any:
        async def record(exchange: Exchange) -> Response:
            params = {"Bucket": exchange.bucket, "Key": exchange.key, **exchange.query}
            executed.append(Executed("s3", name, params))
            raise AwsError("Recorded", "", 299)

        return record

    class Intake:
        async def put(self, request: NewRequest) -> AsyncRequest:
            executed.append(Executed("sagemaker-runtime", "InvokeEndpointAsync", request.params))
            raise AwsError("Recorded", "", 299)

    def own(asked: Asked) -> object:
        executed.append(Executed("execute-api", asked.method, dict(asked.path)))
        raise AwsError("Recorded", "", 299)

    operations = {
        name: {one: operation(name, one) for one in service(name).operation_names}
        for name in SERVED
        if name not in ("s3", "sagemaker-runtime")
    }
    objects = {name: of_s3(name) for name in service("s3").operation_names}
    app = Application(
        operations,
        verifier,
        _call,
        Router([signed_route(verifier, OWN_PATH, dict.fromkeys(("GET", "PUT", "DELETE"), own))]),
        AsyncInvocations(verifier, cast("Any", Intake()), clock),
        _nobody,
    )
    with mock.patch("sagehen.api.s3.app.OPERATIONS", objects):
        yield Recording(app, executed)


async def _nobody(scope: Scope, receive: Receive, send: Send) -> bool:
    return False


def _call(request_id: str) -> Call:
    settings = SimpleNamespace(account_id="000000000000")
    return Call(
        settings=cast("Any", settings),
        database=cast("Any", None),
        writes=cast("Any", None),
        objects=None,
        clock=cast("Any", None),
        arns=cast("Any", None),
        request_id=request_id,
        hint=lambda: None,
        seal=lambda envelope: envelope.message,
        arrivals=cast("Any", None),
    )
