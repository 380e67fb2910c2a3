"""Puts asynchronous requests into the queue, many in one transaction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sagehen.frame.routes import AsyncPlan
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import AsyncRequest, OutputTarget, QueueMode
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import SERVING
from sagehen.state.group_commit import CoalescingWriter, GroupCommit
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

MAX_BATCH = 256
MAX_WAITING_BYTES = 128 * 2**20
"""of all inline bodies that are not on disk yet"""


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


class AsyncIntake:
    """Queues requests; for one event loop.

    Args:
        on_queued: gets an endpoint's name once requests for it are on disk.
    """

    def __init__(
        self, writes: GroupCommit, account_id: str, on_queued: Callable[[str], None]
    ) -> None:
        self._writer = CoalescingWriter(writes, self._queue, self._announce, MAX_BATCH)
        self._account_id = account_id
        self._on_queued = on_queued
        self._bytes = 0

    async def put(self, request: NewRequest) -> AsyncRequest:
        """Queue a request; then it survives crashes.

        Raises:
            AwsError: the endpoint does not take it, or too much waits for the disk.
            StateFull: the disk is full.
        """
        size = len(request.body or b"")
        if self._bytes + size > MAX_WAITING_BYTES:
            raise unavailable(
                f"More than {MAX_WAITING_BYTES} bytes of requests wait to be written to the disk. "
                "Try again in a moment."
            )
        self._bytes += size
        try:
            outcome = await self._writer.put(request)
        finally:
            self._bytes -= size
        if isinstance(outcome, AwsError):
            raise outcome
        return outcome

    def _announce(self, outcomes: Sequence[AsyncRequest | AwsError]) -> None:
        for name in {
            outcome.endpoint_name for outcome in outcomes if isinstance(outcome, AsyncRequest)
        }:
            self._on_queued(name)

    def _queue(
        self, connection: Connection, requests: Sequence[NewRequest]
    ) -> list[AsyncRequest | AwsError]:
        """Runs in the thread that writes."""
        names = sorted({request.params["EndpointName"] for request in requests})
        plans = {name: self._plan(connection, name) for name in names}
        outcomes = [_accept(request, plans[request.params["EndpointName"]]) for request in requests]
        accepted = [
            (outcome, request.body)
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, AsyncRequest)
        ]
        if accepted:
            async_requests.enqueue(connection, accepted)
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


def _accept(request: NewRequest, plan: AsyncPlan | AwsError) -> AsyncRequest | AwsError:
    if isinstance(plan, AwsError):
        return plan
    params = request.params
    output = promise_output(
        plan, request.request_id, params.get("S3OutputPathExtension"), params.get("Filename")
    )
    return AsyncRequest(
        request_id=request.request_id,
        inference_id=request.inference_id,
        endpoint_name=params["EndpointName"],
        received_at=request.received_at,
        expires_at=request.received_at + params.get("RequestTTLSeconds", TTL_SECONDS),
        timeout_seconds=params.get("InvocationTimeoutSeconds", TIMEOUT_SECONDS),
        output=output,
        input_location=params.get("InputLocation"),
        content_type=params.get("ContentType"),
        accept=params.get("Accept"),
        custom_attributes=params.get("CustomAttributes"),
    )
