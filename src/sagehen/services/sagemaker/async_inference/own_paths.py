"""`/_sagehen/async/…`: operators' requests about asynchronous queues.

GET    …/{endpoint}                             the queue's state
POST   …/{endpoint}/pause, drain, resume
GET    …/{endpoint}/requests/{inference id}     state, position, attempts, times, error, places
DELETE …/{endpoint}/requests/{inference id}     cancel
GET    …/{endpoint}/failures?after=&limit=      failed, expired and cancelled requests
POST   …/{endpoint}/redrive                     queue again: `{"inference_id": …}`, or all
"""

from functools import partial
from typing import Any

import msgspec

from sagehen.base.errors import Invalid
from sagehen.frame.own_paths.routes import OwnPathRequest, number_in, own_route
from sagehen.services.sagemaker.async_inference.queues import AsyncQueues
from sagehen.services.sagemaker.async_inference.records import QueueMode

__all__ = ["AsyncPaths"]

PAGE = 100
LARGEST_PAGE = 1000
LARGEST_BODY_BYTES = 64 * 1024

_MODES = {
    "pause": QueueMode.PAUSED,
    "drain": QueueMode.DRAINING,
    "resume": QueueMode.OPEN,
}


class _Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """Without an InferenceId, the oldest failures are queued again."""

    inference_id: str | None = None
    after: int = 0
    limit: int = LARGEST_PAGE


class AsyncPaths:
    """Serves the operators' requests."""

    def __init__(self, queues: AsyncQueues) -> None:
        self._queues = queues
        at = "/_sagehen/async/{endpoint}"
        requests = {"GET": self._requests, "DELETE": self._cancel}
        self.routes = [
            own_route(at, {"GET": self._queue}),
            own_route(at + "/requests/{inference_id:path}", requests),
            own_route(at + "/failures", {"GET": self._failures}),
            own_route(at + "/redrive", {"POST": self._redrive}, LARGEST_BODY_BYTES),
            *(
                own_route(f"{at}/{verb}", {"POST": partial(self._set_mode, mode)})
                for verb, mode in _MODES.items()
            ),
        ]

    def _queue(self, request: OwnPathRequest) -> dict[str, Any]:
        return self._queues.queue(request.path["endpoint"])

    def _set_mode(self, mode: QueueMode, request: OwnPathRequest) -> dict[str, Any]:
        return self._queues.set_mode(request.path["endpoint"], mode)

    def _requests(self, request: OwnPathRequest) -> dict[str, Any]:
        return self._queues.requests(*_named(request))

    def _cancel(self, request: OwnPathRequest) -> dict[str, Any]:
        return self._queues.cancel(*_named(request))

    def _failures(self, request: OwnPathRequest) -> dict[str, Any]:
        after = number_in(request.query, "after", 0, 0, 2**63 - 1)
        limit = number_in(request.query, "limit", PAGE, 1, LARGEST_PAGE)
        return self._queues.failures(request.path["endpoint"], after, limit)

    def _redrive(self, request: OwnPathRequest) -> dict[str, Any]:
        try:
            redrive = msgspec.json.decode(request.body or b"{}", type=_Redrive)
        except ValueError as error:
            raise Invalid(f"The body is not what can be redriven: {error}.") from error
        if not 1 <= redrive.limit <= LARGEST_PAGE:
            raise Invalid(f"limit must be a number from 1 to {LARGEST_PAGE}.")
        return self._queues.redrive(
            request.path["endpoint"], redrive.inference_id, redrive.after, redrive.limit
        )


def _named(request: OwnPathRequest) -> tuple[str, str]:
    return request.path["endpoint"], request.path["inference_id"]
