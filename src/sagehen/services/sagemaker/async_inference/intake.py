"""Puts asynchronous requests into the queue: many in one transaction, each answered when it is
on disk.

Where an asynchronous request's answer will be: promised before it is made.
"""

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
    """The objects that may come of a request: one for its answer, one for its failure.

    Their names come from our own id, never from the InferenceId, which may be anything at all.

    Args:
        extension: S3OutputPathExtension, a folder below both paths.
        filename: Filename, taken as it is; `-error` goes before its own extension.
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
    """One slash between parts, whether or not they bring some; the form of the address stays."""
    parts = (path.removesuffix("/"), (extension or "").strip("/"), name)
    return "/".join(filter(None, parts))


TTL_SECONDS = 21_600
"""RequestTTLSeconds where it is not given; the model has its bounds and no default."""
TIMEOUT_SECONDS = 900
"""InvocationTimeoutSeconds where it is not given."""

MOST_IN_BATCH = 256
MOST_WAITING_BYTES = 128 * 2**20
"""Inline bodies of all requests that are not on disk yet."""


class NewRequest(NamedTuple):
    """A request that is to be queued."""

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
    """For one event loop.

    Args:
        queued: told the names of the endpoints that have got requests, once these are on disk.
    """

    def __init__(self, writes: GroupCommit, account_id: str, queued: Callable[[str], None]) -> None:
        self._writes = writes
        self._account_id = account_id
        self._queued = queued
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def put(self, request: NewRequest) -> AsyncRequest:
        """The request as it was queued; it survives everything from now on.

        Raises:
            AwsError: its endpoint does not take it, or too much waits for the disk.
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
        """One batch after the other: what comes while one is written makes the next."""
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
        """What came of each of `requests`. Runs in the thread that writes."""
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
        """What the endpoint does with requests, or why it takes none.

        Read with its row locked: none is queued for an endpoint behind the back of its deletion.
        """
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
    """Unless nobody waits any more: then the request is queued, or not, all the same."""
    if accepted.done():
        return
    if isinstance(outcome, AsyncRequest):
        accepted.set_result(outcome)
    else:
        accepted.set_exception(outcome)
