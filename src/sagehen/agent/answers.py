"""What the agent's HTTP routes have in common: bodies read, long polls, answers written."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sagehen.errors import Invalid

__all__ = ["answer_json", "answer_list", "read_body"]

MOST_BODY_BYTES = 2**20

_T = TypeVar("_T")


async def read_body(request: Request, kind: type[_T]) -> _T:
    """The body as `kind`. Raises Invalid."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise Invalid(f"The body is larger than {MOST_BODY_BYTES} bytes.")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Invalid(f"The body is not what is expected: {error}") from error


def answer_json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def answer_list(
    request: Request,
    list_now: Callable[[], object],
    wait: Callable[[int, float], Coroutine[Any, Any, object]],
) -> Response:
    """A list that has versions: now, or with `since` a long poll of `wait_seconds`."""
    since = request.query_params.get("since")
    if since is None:
        return answer_json(list_now())
    try:
        seconds = float(request.query_params.get("wait_seconds", "0"))
        version = int(since)
    except ValueError as error:
        raise Invalid(f"A query parameter is not a number: {error}") from error
    return await _unless_disconnected(request, wait(version, seconds))


async def _unless_disconnected(request: Request, wait: Coroutine[Any, Any, object]) -> Response:
    """The answer, given up when nobody waits for it: a stopping server waits for its handlers."""
    answering = asyncio.create_task(wait)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        return answer_json(answering.result()) if answering.done() else Response(status_code=204)
    finally:
        answering.cancel()
        watching.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
