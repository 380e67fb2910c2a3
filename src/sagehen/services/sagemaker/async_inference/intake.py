"""Puts asynchronous requests into the queue, many in one transaction."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import AsyncRequest, OutputTarget, QueueMode
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import SERVING
from sagehen.state.group_commit import GroupCommit
from sagehen.wire.errors import AwsError, endpoint_not_found, unavailable, validation_error

__all__ = ["AsyncIntake", "NewRequest", "promise_output"]


def promise_output(
    plan: AsyncPlan, request_id: str, extension: str | None = None, filename: str | None = None
) -> OutputTarget:
    """Returns where a request's answer or failure will be written.

    Names come from Sagehen's id, never from the InferenceId, which may be any text.

    Args:
        extension: S3OutputPathExtension, a folder below both paths.
        filename: the failure's has `-error` before its extension.
    """
    name = filename or f"{request_id}.out"
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    failure = plan.failure_path
    return OutputTarget(
        location=_join(plan.output_path, extension, name),
        failure_location=failure and _join(failure, extension, f"{stem}-error{dot}{ending}"),
        success_topic=plan.success_topic,
        error_topic=plan.error_topic,
        include_response_in=plan.include_response_in,
    )


def _join(path: str, extension: str | None, name: str) -> str:
    parts = (path.removesuffix("/"), (extension or "").strip("/"), name)
    return "/".join(filter(None, parts))


TTL_SECONDS = 21_600
"""Sagehen's default of RequestTTLSeconds: the model has none."""
TIMEOUT_SECONDS = 900
"""InvocationTimeoutSeconds' default."""

MOST_IN_BATCH = 256
MOST_WAITING_BYTES = 128 * 2**20
"""Of all inline bodies not on disk yet."""


class NewRequest(NamedTuple):
    """A request to be queued."""

    request_id: str
    inference_id: str
    received_at: float
    params: Mapping[str, Any]
    """InvokeEndpointAsync's members."""

    @property
    def body(self) -> bytes | None:
        inline: bytes | None = self.params.get("Body")
        return inline


class _Waiting(NamedTuple):
    request: NewRequest
    accepted: asyncio.Future[AsyncRequest]


class AsyncIntake:
    """Queues requests; for one event loop.

    Args:
        queued: gets the endpoints' names once their requests are on disk.
    """

    def __init__(self, writes: GroupCommit, account_id: str, queued: Callable[[str], None]) -> None:
        self._writes = writes
        self._account_id = account_id
        self._queued = queued
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def put(self, request: NewRequest) -> AsyncRequest:
        """Queue a request; then it survives crashes.

        Raises:
            AwsError: the endpoint does not take it, or too much waits for the disk.
            StateFull: there is no room for it.
        """
        size = len(request.body or b"")
        if self._bytes + size > MOST_WAITING_BYTES:
            raise unavailable(
                f"More than {MOST_WAITING_BYTES} bytes of requests wait to be written to the disk. "
                "Try again in a moment."
            )
        accepted: asyncio.Future[AsyncRequest] = asyncio.get_running_loop().create_future()
        self._bytes += size
        self._waiting.append(_Waiting(request, accepted))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        try:
            return await accepted
        finally:
            self._bytes -= size

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), MOST_IN_BATCH)
                await self._write([self._waiting.popleft() for _ in range(count)])
        finally:
            self._writing = None

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        requests = [one.request for one in batch]
        try:
            outcomes = await self._writes.join(lambda connection: self._queue(connection, requests))
        except BaseException as error:
            for one in batch:
                _settle(one.accepted, error)
            if not isinstance(error, Exception):
                raise
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            _settle(one.accepted, outcome)
        for name in {one.endpoint_name for one in outcomes if isinstance(one, AsyncRequest)}:
            self._queued(name)

    def _queue(
        self, connection: Connection, requests: Sequence[NewRequest]
    ) -> list[AsyncRequest | AwsError]:
        """Runs in the thread that writes."""
        names = sorted({one.params["EndpointName"] for one in requests})
        plans = {name: self._plan(connection, name) for name in names}
        outcomes = [_accept(one, plans[one.params["EndpointName"]]) for one in requests]
        taken = [
            (accepted, one.body)
            for one, accepted in zip(requests, outcomes, strict=True)
            if isinstance(accepted, AsyncRequest)
        ]
        if taken:
            async_requests.enqueue(connection, taken)
        return outcomes

    def _plan(self, connection: Connection, name: str) -> AsyncPlan | AwsError:
        """Returns the endpoint's plan, or why it takes no requests. Locks the row against
        deletion."""
        record = endpoints.get_for_update(connection, name)
        serves = record is not None and record.name == name and record.status in SERVING
        if record is None or not serves or record.current is None:
            return endpoint_not_found(name, self._account_id)
        plan = record.current.asynchronous
        if plan is None:
            return validation_error(
                f"Endpoint {name} is not asynchronous (its endpoint configuration has no "
                "AsyncInferenceConfig). Call InvokeEndpoint."
            )
        if async_requests.endpoint_queue(connection, name).mode is QueueMode.DRAINING:
            return unavailable(
                f"Endpoint {name} is being drained and accepts no requests until it is resumed: "
                f"sagehen async resume {name}."
            )
        return plan


def _accept(new: NewRequest, plan: AsyncPlan | AwsError) -> AsyncRequest | AwsError:
    if isinstance(plan, AwsError):
        return plan
    params = new.params
    output = promise_output(
        plan, new.request_id, params.get("S3OutputPathExtension"), params.get("Filename")
    )
    return AsyncRequest(
        request_id=new.request_id,
        inference_id=new.inference_id,
        endpoint_name=params["EndpointName"],
        received_at=new.received_at,
        expires_at=new.received_at + params.get("RequestTTLSeconds", TTL_SECONDS),
        timeout_seconds=params.get("InvocationTimeoutSeconds", TIMEOUT_SECONDS),
        output=output,
        input_location=params.get("InputLocation"),
        content_type=params.get("ContentType"),
        accept=params.get("Accept"),
        custom_attributes=params.get("CustomAttributes"),
    )


def _settle(accepted: asyncio.Future[AsyncRequest], outcome: AsyncRequest | BaseException) -> None:
    """Set the result, unless the caller has given up."""
    if accepted.done():
        return
    if isinstance(outcome, AsyncRequest):
        accepted.set_result(outcome)
    else:
        accepted.set_exception(outcome)
