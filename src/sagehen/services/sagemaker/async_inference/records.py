"""Requests that outlive their call: what an asynchronous endpoint was told, and where it stands."""

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
    """Where a request stands; the last four are final."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    """A worker has it until its lease runs out."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    """It waited for longer than RequestTTLSeconds."""
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return self not in (AsyncState.QUEUED, AsyncState.LEASED)


class OutputTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a request's answer goes and who is told: promised when it was accepted, kept since."""

    location: str
    """The URI that the 202 told."""
    failure_location: str | None = None
    success_topic: str | None = None
    error_topic: str | None = None
    include_response_in: tuple[str, ...] = ()


class AsyncRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What InvokeEndpointAsync was asked; it never changes.

    Either `input_location` is there, or its body was given inline and is kept beside it.
    """

    request_id: str
    """Ours, and nobody else's: an InferenceId may come twice."""
    inference_id: str
    endpoint_name: str
    """With its case."""
    received_at: float
    """Seconds since the epoch, as every `_at`."""
    expires_at: float
    """From then on it is not sent to a container any more."""
    timeout_seconds: float
    """InvocationTimeoutSeconds."""
    output: OutputTarget
    input_location: str | None = None
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None


class AsyncOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a request."""

    state: AsyncState
    """A final one."""
    failure_reason: str | None = None
    content_type: str | None = None
    """Of the object that was written."""
    location: str | None = None
    """Of the object that was written, output or failure; None where none was."""
    status: int | None = None
    """The container's, where it answered."""


class QueuedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the queue."""

    sequence: int
    """In the order of receipt; the identity of the row."""
    request: AsyncRequest
    state: AsyncState
    attempt: int = 0
    """How often it was leased; also the fencing token: what a worker with an older one says of the
    request does not count."""
    lost: int = 0
    """How many attempts ended because the instance was lost, since it was accepted or redriven."""
    reclaimed: int = 0
    """How many ended because control was lost."""
    redrives: int = 0
    """How often it was sent again by hand after it had failed."""
    end_at: float | None = None
    """From when on it is not sent any more: its `expires_at`, unless it was redriven since."""
    lease_until: float | None = None
    cancel_requested: bool = False
    started_at: float | None = None
    """When it was last taken up to be sent."""
    ended_at: float | None = None
    outcome: AsyncOutcome | None = None


class QueueMode(StrEnum):
    """What an operator wants of an endpoint's queue."""

    OPEN = "OPEN"
    PAUSED = "PAUSED"
    """Requests are accepted and wait."""
    DRAINING = "DRAINING"
    """None are accepted; those that wait are worked on."""


class EndpointQueue(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue of one endpoint stands."""

    endpoint_name: str
    queued: int = 0
    leased: int = 0
    mode: QueueMode = QueueMode.OPEN
    abandoned_to: int = 0
    """Its endpoint was deleted after this sequence: requests up to it are ended, not sent."""
