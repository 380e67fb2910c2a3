"""Own paths that get a request's parts and give what becomes JSON.

    own_route("/_sagehen/stacks/{name}", {"GET": read, "PUT": put})

`read` gets an Asked and returns what becomes JSON, or raises one of our errors, which becomes
`{"message": …}` with its status. It runs in a thread, unless it is a coroutine's. Who may ask was
decided before: see own_access.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.api.asgi import request_head
from sagehen.api.own_answers import aws_refusal, json_answer, refusal, whole_body
from sagehen.errors import SagehenError
from sagehen.wire.faults import AwsError
from sagehen.wire.parameters import check_each_once, parameters_of

__all__ = ["Act", "Asked", "own_route"]

LARGEST_BODY_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Asked:
    """A request by somebody who may."""

    method: str
    path: Mapping[str, str]
    """The path's parameters, decoded."""
    query: Mapping[str, str]
    """Each parameter comes once."""
    body: bytes


Act = Callable[[Asked], object] | Callable[[Asked], Awaitable[object]]


def own_route(
    path: str, acts: Mapping[str, Act], largest_body_bytes: int = LARGEST_BODY_BYTES
) -> Route:
    """What answers at `path` (Starlette's form) by method."""

    async def answer(request: Request) -> Response:
        try:
            body = await whole_body(request, largest_body_bytes)
            query = parameters_of(request_head(request.scope).raw_query)
            check_each_once(query)
            asked = Asked(request.method, request.path_params, dict(query), body)
            act = acts["GET" if request.method == "HEAD" else request.method]
            if inspect.iscoroutinefunction(act):
                return json_answer(await act(asked))
            return json_answer(await asyncio.to_thread(act, asked))
        except SagehenError as error:
            return refusal(error)
        except AwsError as error:
            return aws_refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    return Route(path, answer, methods=list(acts))
