"""Routes of the own paths, from functions that take an OwnPathRequest and return JSON.

    own_route("/_sagehen/stacks/{name}", {"GET": read, "PUT": put})

Our errors become `{"message": …}` with a status. Plain functions run in a thread. `access` has
checked the caller before.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.base.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    SagehenError,
    Unavailable,
)
from sagehen.frame.asgi import request_head
from sagehen.wire.errors import AwsError
from sagehen.wire.parameters import check_each_once, parameters_of

__all__ = [
    "Act",
    "OwnPathRequest",
    "aws_refusal",
    "json_answer",
    "number_in",
    "own_route",
    "refusal",
    "whole_body",
]

_STATUSES: tuple[tuple[type[SagehenError], int], ...] = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (Conflict, 409),
    (Invalid, 400),
    (Unavailable, 503),
)


def json_answer(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def refusal(error: SagehenError) -> Response:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return json_answer({"message": str(error)}, status)


def aws_refusal(error: AwsError) -> Response:
    """API Gateway's form: the code is in a header."""
    answer = json_answer({"message": error.message}, error.status or 400)
    answer.headers["x-amzn-errortype"] = error.code
    return answer


async def whole_body(request: Request, most_bytes: int) -> bytes:
    """Raises Invalid if too long, ClientDisconnect if the client left early."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise Invalid(f"The body may have {most_bytes} bytes at most.")
    return bytes(body)


def number_in(
    query: Mapping[str, str], name: str, default: int | None, minimum: int, maximum: int
) -> int:
    """Raises Invalid."""
    text = query.get(name)
    if text is None and default is not None:
        return default
    if (
        text
        and text.isascii()
        and text.isdigit()
        and len(text) < 20
        and minimum <= int(text) <= maximum
    ):
        return int(text)
    raise Invalid(f"{name} must be a number from {minimum} to {maximum}.")


LARGEST_BODY_BYTES = 4 * 2**20


@dataclass(frozen=True)
class OwnPathRequest:
    """A request whose sender was authorized."""

    method: str
    path: Mapping[str, str]
    """path parameters, decoded"""
    query: Mapping[str, str]
    """each parameter once"""
    body: bytes


Act = Callable[[OwnPathRequest], object] | Callable[[OwnPathRequest], Awaitable[object]]


def own_route(
    path: str, acts: Mapping[str, Act], largest_body_bytes: int = LARGEST_BODY_BYTES
) -> Route:
    """Makes a route for `path` (Starlette's syntax) with a function per method."""

    async def answer(request: Request) -> Response:
        try:
            body = await whole_body(request, largest_body_bytes)
            query = parameters_of(request_head(request.scope).raw_query)
            check_each_once(query)
            own_request = OwnPathRequest(request.method, request.path_params, dict(query), body)
            act = acts["GET" if request.method == "HEAD" else request.method]
            if inspect.iscoroutinefunction(act):
                return json_answer(await act(own_request))
            return json_answer(await asyncio.to_thread(act, own_request))
        except SagehenError as error:
            return refusal(error)
        except AwsError as error:
            return aws_refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    return Route(path, answer, methods=list(acts))
