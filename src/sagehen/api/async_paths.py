"""`/_sagehen/async/…`: what is beyond SageMaker's operations on asynchronous endpoints.

GET    …/{endpoint}                             how its queue stands
POST   …/{endpoint}/pause, drain, resume        what becomes of the queue
GET    …/{endpoint}/requests/{inference id}     state, position, attempts, times, error, places
DELETE …/{endpoint}/requests/{inference id}     cancel, while it waits or is worked on
GET    …/{endpoint}/failures?after=&limit=      what failed, expired or was cancelled
POST   …/{endpoint}/redrive                     queue it again: `{"inference_id": …}`, or all
"""

import asyncio
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request

from sagehen.api.async_queues import AsyncQueues
from sagehen.api.own_answers import number_in, whole_body
from sagehen.api.unsigned_paths import unsigned_route
from sagehen.domain.asynchronous import QueueMode
from sagehen.errors import Invalid

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
            unsigned_route(at, self._queue),
            unsigned_route(at + "/requests/{inference_id:path}", self._requests),
            unsigned_route(at + "/requests/{inference_id:path}", self._cancel, "DELETE"),
            unsigned_route(at + "/failures", self._failures),
            unsigned_route(at + "/redrive", self._redrive, "POST"),
            *(
                unsigned_route(f"{at}/{verb}", partial(self._set_mode, mode), "POST")
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
        after = number_in(request.query_params, "after", 0, 0, 2**63 - 1)
        limit = number_in(request.query_params, "limit", PAGE, 1, LARGEST_PAGE)
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


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["endpoint"], request.path_params["inference_id"]
