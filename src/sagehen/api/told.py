"""Own paths that answer JSON: what is asked, or why it cannot be."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sagehen.api.same_site import foreign_page
from sagehen.errors import Conflict, Invalid, NotFound, SagehenError, Unavailable

__all__ = ["Answering", "number_in", "told"]

_STATUSES: tuple[tuple[type[SagehenError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 400),
    (Unavailable, 503),
)

Answering = Callable[[Request], Awaitable[dict[str, Any]]]


def told(answering: Answering) -> Callable[[Request], Awaitable[Response]]:
    """What `answering` gives, or why it cannot, as JSON."""

    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            reason = foreign_page(request.headers)
            if reason is not None:
                return _json({"message": f"A page of another site may not do this: {reason}."}, 403)
        try:
            return _json(await answering(request))
        except SagehenError as error:
            return _json({"message": str(error)}, _status(error))
        except ClientDisconnect:
            return Response(status_code=400)

    return answer


def _status(error: SagehenError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def number_in(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A number of the query, `default` where it is not there. Raises Invalid."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise Invalid(f"{name} must be a number from {least} to {most}.")


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
