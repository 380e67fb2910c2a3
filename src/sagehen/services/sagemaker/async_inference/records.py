"""Asynchronous requests and the queues of their endpoints."""

from enum import StrEnum

import msgspec

__all__ = [
    "AsyncOutcome",
    "AsyncRequest",
    "AsyncState",
    "EndpointQueue",
    "OutputTarget",
    "QueueMode",
    "QueuedRequest",
]


class AsyncState(StrEnum):
    """A request's state; the last four are final."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    """A worker has the request until its lease runs out."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    """Waited longer than RequestTTLSeconds."""
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return self not in (AsyncState.QUEUED, AsyncState.LEASED)


class OutputTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the answer goes, and the topics to notify."""

    location: str
    """URI, as in the 202's header."""
    failure_location: str | None = None
    success_topic: str | None = None
    error_topic: str | None = None
    include_response_in: tuple[str, ...] = ()


class AsyncRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of InvokeEndpointAsync; without `input_location` the body is inline, in a
    table of its own."""

    request_id: str
    """Unique; an InferenceId may come twice."""
    inference_id: str
    endpoint_name: str
    """in its own case"""
    received_at: float
    """seconds since the epoch, as every `_at`"""
    expires_at: float
    """the request is not sent afterwards"""
    timeout_seconds: float
    output: OutputTarget
    input_location: str | None = None
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None


class AsyncOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a request."""

    state: AsyncState
    failure_reason: str | None = None
    content_type: str | None = None
    location: str | None = None
    """The object that was written, output or failure, if any."""
    status: int | None = None


class QueuedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the queue."""

    sequence: int
    """grows in the order of receipt; identifies the row"""
    request: AsyncRequest
    state: AsyncState
    attempt: int = 0
    """How often it was leased; the fencing token: calls with an older one have no effect."""
    lost: int = 0
    """Attempts whose instance was lost, since it was accepted or redriven."""
    reclaimed: int = 0
    """Attempts whose control was lost."""
    redrives: int = 0
    end_at: float | None = None
    """the request is not sent afterwards: `expires_at`, or later if redriven"""
    lease_until: float | None = None
    cancel_requested: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    outcome: AsyncOutcome | None = None


class QueueMode(StrEnum):
    """Set by an operator."""

    OPEN = "OPEN"
    PAUSED = "PAUSED"
    DRAINING = "DRAINING"
    """No new requests are accepted; those that wait are worked on."""


class EndpointQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an endpoint's queue."""

    endpoint_name: str
    queued: int = 0
    leased: int = 0
    mode: QueueMode = QueueMode.OPEN
    abandoned_to: int = 0
    """The endpoint was deleted after this sequence: requests up to it are ended, not sent."""
