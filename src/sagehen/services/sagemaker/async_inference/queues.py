"""Operators' actions on asynchronous queues: look, cancel, redrive, pause, drain.

All calls block: use a thread.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.errors import Conflict, NotFound
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import (
    AsyncState,
    QueuedRequest,
    QueueMode,
)
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import SERVING, EndpointRecord, EndpointStatus
from sagehen.state.database import Database

__all__ = ["AsyncQueues"]

MAX_POSITIONS = 10
"""Requests per InferenceId whose position is counted."""


class AsyncQueues:
    """Returns JSON; times are seconds since the epoch.

    Args:
        changed: called with the name of an endpoint whose queue changed, after the commit.
    """

    def __init__(self, database: Database, clock: Clock, changed: Callable[[str], None]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed

    def queue(self, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        with self._database.read() as connection:
            _endpoint(connection, name)
            return _describe_queue(connection, name)

    def set_mode(self, name: str, mode: QueueMode) -> dict[str, Any]:
        """Raises NotFound."""
        with self._database.write() as connection:
            _endpoint(connection, name)
            async_requests.set_mode(connection, name, mode)
            described = _describe_queue(connection, name)
        self._changed(name)
        return described

    def requests(self, name: str, inference_id: str) -> dict[str, Any]:
        with self._database.read() as connection:
            return _describe_all(connection, _find_requests(connection, name, inference_id))

    def cancel(self, name: str, inference_id: str) -> dict[str, Any]:
        """End the requests of an InferenceId that have not ended; returns all of them.

        Raises:
            Conflict: all have ended.
        """
        with self._database.write() as connection:
            requests = _find_requests(connection, name, inference_id)
            now = self._clock.now()
            cancelled = [
                queued
                for queued in requests
                if async_requests.cancel(connection, queued.sequence, now)
            ]
            if not cancelled:
                raise Conflict(
                    f"Request {inference_id} of endpoint {name} has ended already: it is "
                    f"{requests[0].state.value}."
                )
            described = _describe_all(connection, _find_requests(connection, name, inference_id))
        self._changed(name)
        return described

    def failures(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """Returns a page of failed, expired and cancelled requests, oldest first.

        `next` is the `after` of the next page, or None. Those of a deleted endpoint are kept for a
        while. Raises NotFound for a name without an asynchronous endpoint or failures.
        """
        with self._database.read() as connection:
            page = async_requests.failures(connection, name, after, limit + 1)
            if not page:
                _endpoint(connection, name)
            described = [_describe(request) for request in page[:limit]]
        more = len(page) > limit
        return {"failures": described, "next": described[-1]["sequence"] if more else None}

    def redrive(
        self, name: str, inference_id: str | None, after: int, limit: int
    ) -> dict[str, Any]:
        """Queue failed, expired or cancelled requests again: of one InferenceId, or all after the
        sequence `after`, oldest first.

        Raises:
            NotFound: there is no such endpoint or request.
            Conflict: the endpoint takes no requests, or the request has not failed.
        """
        with self._database.write() as connection:
            _serving(connection, name)
            if inference_id is None:
                failed = async_requests.failures(connection, name, after, limit + 1)
            else:
                failed = _failed(connection, name, inference_id)
            chosen = [request.sequence for request in failed[:limit]]
            again = async_requests.redrive(connection, chosen, self._clock.now())
        self._changed(name)
        return {"redriven": len(again), "next": chosen[-1] if len(failed) > limit else None}


def _endpoint(connection: Connection, name: str) -> EndpointRecord:
    record = endpoints.get(connection, name)
    if record is None or record.name != name or record.status is EndpointStatus.DELETING:
        raise NotFound(f"There is no endpoint {name}.")
    shown = record.current or record.target
    if shown is None or shown.asynchronous is None:
        raise NotFound(f"Endpoint {name} is not asynchronous.")
    return record


def _serving(connection: Connection, name: str) -> None:
    record = _endpoint(connection, name)
    if record.status not in SERVING:
        raise Conflict(f"Endpoint {name} takes no requests: it is {record.status.value}.")


def _find_requests(connection: Connection, name: str, inference_id: str) -> list[QueuedRequest]:
    requests = async_requests.find(connection, name, inference_id)
    if not requests:
        raise NotFound(
            f"Endpoint {name} has no request {inference_id}; those that ended long ago are "
            "forgotten (setting async_history_seconds)."
        )
    return requests


def _failed(connection: Connection, name: str, inference_id: str) -> list[QueuedRequest]:
    requests = _find_requests(connection, name, inference_id)
    failed = [
        queued
        for queued in requests
        if queued.state.is_final and queued.state is not AsyncState.SUCCEEDED
    ]
    if not failed:
        raise Conflict(
            f"Request {inference_id} of endpoint {name} has not failed: it is "
            f"{requests[0].state.value}."
        )
    return failed


def _describe_queue(connection: Connection, name: str) -> dict[str, Any]:
    queue = async_requests.endpoint_queue(connection, name)
    return {
        "endpoint": name,
        "mode": queue.mode.value,
        "queued": queue.queued,
        "in_process": queue.leased,
        "oldest_received_at": async_requests.oldest_received_at(connection, name),
    }


def _describe_all(connection: Connection, rows: Sequence[QueuedRequest]) -> dict[str, Any]:
    described = []
    for number, row in enumerate(rows):
        # Counting reads each request that waits before it.
        counted = row.state is AsyncState.QUEUED and number < MAX_POSITIONS
        described.append(_describe(row, _position(connection, row) if counted else None))
    return {"requests": described}


def _describe(row: QueuedRequest, position: int | None = None) -> dict[str, Any]:
    request, outcome = row.request, row.outcome
    return {
        "sequence": row.sequence,
        "request_id": request.request_id,
        "inference_id": request.inference_id,
        "endpoint": request.endpoint_name,
        "state": row.state.value,
        "position": position,
        "cancel_requested": row.cancel_requested,
        # A request that was ended without being sent was not attempted.
        "attempts": 0 if row.started_at is None else row.attempt,
        "lost_instances": row.lost,
        "redrives": row.redrives,
        "received_at": request.received_at,
        "expires_at": request.expires_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "timeout_seconds": request.timeout_seconds,
        "input_location": request.input_location,
        "output_location": request.output.location,
        "failure_location": request.output.failure_location,
        # Set once it has ended.
        "location": outcome and outcome.location,
        "failure_reason": outcome and outcome.failure_reason,
        "container_status": outcome and outcome.status,
    }


def _position(connection: Connection, row: QueuedRequest) -> int:
    return async_requests.position(connection, row.request.endpoint_name, row.sequence)
