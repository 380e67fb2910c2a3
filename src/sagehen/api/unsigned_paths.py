"""Own paths that need no signature: whoever reaches the port may use them, but for web pages."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.api.asgi import request_head
from sagehen.api.own_answers import json_answer, refusal
from sagehen.api.same_site import foreign_page
from sagehen.errors import SagehenError

__all__ = ["unsigned_route"]

Act = Callable[[Request], Awaitable[dict[str, Any]]]


def unsigned_route(path: str, act: Act, method: str = "GET") -> Route:
    """What `act` returns, or why it cannot, as JSON."""

    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            reason = foreign_page(request_head(request.scope).headers)
            if reason is not None:
                message = f"A page of another site may not do this: {reason}."
                return json_answer({"message": message}, 403)
        try:
            return json_answer(await act(request))
        except SagehenError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    return Route(path, answer, methods=[method])
