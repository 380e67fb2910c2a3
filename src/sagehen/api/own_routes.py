"""Own paths that need the account's keys: signed by SigV4 for the service `execute-api`, as
requests to a REST API of one's own behind IAM are.

    signed_route(verifier, "/_sagehen/stacks/{name}", {"GET": read, "PUT": put})

`read` gets an Asked and returns what becomes JSON, or raises one of our errors, which becomes
`{"message": …}` with its status. It runs in a thread, unless it is a coroutine's.
"""

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.api.asgi import request_head
from sagehen.api.own_answers import json_answer, refusal, whole_body
from sagehen.errors import SagehenError
from sagehen.wire.faults import AwsError
from sagehen.wire.sigv4 import Verifier

__all__ = ["SIGNED_FOR", "Act", "Asked", "signed_route"]

SIGNED_FOR = "execute-api"
"""The service in the credential scope."""

LARGEST_BODY_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Asked:
    """A request whose signature is right."""

    method: str
    path: Mapping[str, str]
    """The path's parameters, decoded."""
    query: Mapping[str, str]
    """Of a parameter that comes twice, the last."""
    body: bytes


Act = Callable[[Asked], object] | Callable[[Asked], Awaitable[object]]


def signed_route(
    verifier: Verifier,
    path: str,
    acts: Mapping[str, Act],
    largest_body_bytes: int = LARGEST_BODY_BYTES,
) -> Route:
    """What answers at `path` (Starlette's form) by method, to whoever signs for `execute-api`."""

    async def answer(request: Request) -> Response:
        try:
            body = await whole_body(request, largest_body_bytes)
            head = request_head(request.scope)
            verifier.verify(head, hashlib.sha256(body).hexdigest(), service=SIGNED_FOR)
            asked = Asked(request.method, request.path_params, request.query_params, body)
            act = acts["GET" if request.method == "HEAD" else request.method]
            if inspect.iscoroutinefunction(act):
                return json_answer(await act(asked))
            return json_answer(await asyncio.to_thread(act, asked))
        except AwsError as error:
            # The code stands where API Gateway has it.
            answer = json_answer({"message": error.message}, error.status or 400)
            answer.headers["x-amzn-errortype"] = error.code
            return answer
        except SagehenError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    return Route(path, answer, methods=list(acts))
