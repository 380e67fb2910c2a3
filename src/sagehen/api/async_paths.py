"""`/_sagehen/async/…`: what is beyond SageMaker's operations on asynchronous endpoints.

GET    …/{endpoint}                             how its queue stands
POST   …/{endpoint}/pause, drain, resume        what becomes of the queue
GET    …/{endpoint}/requests/{inference id}     state, position, attempts, times, error, places
DELETE …/{endpoint}/requests/{inference id}     cancel, while it waits or is worked on
GET    …/{endpoint}/failures?after=&limit=      what failed, expired or was cancelled
POST   …/{endpoint}/redrive                     queue it again: `{"inference_id": …}`, or all
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.api.async_queues import AsyncQueues
from sagehen.api.own_answers import json_answer, refusal, whole_body
from sagehen.api.same_site import foreign_page
from sagehen.domain.asynchronous import QueueMode
from sagehen.errors import Invalid, SagehenError

__all__ = ["AsyncPaths"]

PAGE = 100
LARGEST_PAGE = 1000
"""Also how many are redriven at once."""
LARGEST_BODY_BYTES = 64 * 1024

_MODES = {
    "pause": QueueMode.PAUSED,
    "drain": QueueMode.DRAINING,
    "resume": QueueMode.OPEN,
}
_Answering = Callable[[Request], Awaitable[dict[str, Any]]]


class _Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be redriven; of all failures the oldest, where no InferenceId is given."""

    inference_id: str | None = None
    after: int = 0
    limit: int = LARGEST_PAGE


class AsyncPaths:
    """`routes` are to be served with the other own paths."""

    def __init__(self, queues: AsyncQueues) -> None:
        self._queues = queues
        at = "/_sagehen/async/{endpoint}"
        self.routes = [
            Route(at, _told(self._queue)),
            Route(at + "/requests/{inference_id:path}", _told(self._requests), methods=["GET"]),
            Route(at + "/requests/{inference_id:path}", _told(self._cancel), methods=["DELETE"]),
            Route(at + "/failures", _told(self._failures)),
            Route(at + "/redrive", _told(self._redrive), methods=["POST"]),
            *(
                Route(f"{at}/{verb}", _told(partial(self._set_mode, mode)), methods=["POST"])
                for verb, mode in _MODES.items()
            ),
        ]

    async def _queue(self, request: Request) -> dict[str, Any]:
        return await asyncio.to_thread(self._queues.queue, request.path_params["endpoint"])

    async def _set_mode(self, mode: QueueMode, request: Request) -> dict[str, Any]:
        name = request.path_params["endpoint"]
        return await asyncio.to_thread(self._queues.set_mode, name, mode)

    async def _requests(self, request: Request) -> dict[str, Any]:
        return await asyncio.to_thread(self._queues.requests, *_named(request))

    async def _cancel(self, request: Request) -> dict[str, Any]:
        return await asyncio.to_thread(self._queues.cancel, *_named(request))

    async def _failures(self, request: Request) -> dict[str, Any]:
        name = request.path_params["endpoint"]
        after = _number(request, "after", 0, 0, 2**63 - 1)
        limit = _number(request, "limit", PAGE, 1, LARGEST_PAGE)
        return await asyncio.to_thread(self._queues.failures, name, after, limit)

    async def _redrive(self, request: Request) -> dict[str, Any]:
        name = request.path_params["endpoint"]
        body = await whole_body(request, LARGEST_BODY_BYTES)
        try:
            wanted = msgspec.json.decode(body or b"{}", type=_Redrive)
        except msgspec.DecodeError as error:
            raise Invalid(f"The body is not what can be redriven: {error}.") from error
        if not 1 <= wanted.limit <= LARGEST_PAGE:
            raise Invalid(f"limit must be a number from 1 to {LARGEST_PAGE}.")
        return await asyncio.to_thread(
            self._queues.redrive, name, wanted.inference_id, wanted.after, wanted.limit
        )


def _told(answering: _Answering) -> Callable[[Request], Awaitable[Response]]:
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


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["endpoint"], request.path_params["inference_id"]


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise Invalid(f"{name} must be a number from {least} to {most}.")
