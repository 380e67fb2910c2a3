"""Own paths that answer JSON: what is asked, or why it cannot be."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sagehen.api.own_answers import json_answer, refusal
from sagehen.api.same_site import foreign_page
from sagehen.errors import Invalid, SagehenError

__all__ = ["Answering", "number_in", "told"]

Answering = Callable[[Request], Awaitable[dict[str, Any]]]


def told(answering: Answering) -> Callable[[Request], Awaitable[Response]]:
    """What `answering` gives, or why it cannot, as JSON."""

    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            reason = foreign_page(request.headers)
            if reason is not None:
                message = f"A page of another site may not do this: {reason}."
                return json_answer({"message": message}, 403)
        try:
            return json_answer(await answering(request))
        except SagehenError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    return answer


def number_in(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A number of the query, `default` where it is not there. Raises Invalid."""
    text = query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise Invalid(f"{name} must be a number from {least} to {most}.")
