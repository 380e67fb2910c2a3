"""The Async-Inference-Service: services, the jobs they were asked for, what they answered, and who
may ask."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.services.sagemaker.training.records import JobStatus, SecondaryStatus

__all__ = [
    "AnswerRecord",
    "ApiKeyRecord",
    "InferenceJobRecord",
    "InferenceState",
    "ServiceRecord",
    "ServiceSource",
]


class ServiceSource(StrEnum):
    SETTINGS = "settings"
    """sagehen.toml describes it, and nothing else may change it."""
    API = "api"
    """It was put by a request, as `sagehen apply` does."""


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A service. Who makes or ends its jobs locks it first: so no two take the same slot."""

    stage: str
    source: ServiceSource
    given: dict[str, Any]
    """Its settings, as they were given: the others have their defaults."""
    created_at: float
    """Seconds since the epoch, as every `_at`."""
    modified_at: float
    emails: tuple[str, ...] = ()
    """Addresses that were subscribed once: who has unsubscribed is not subscribed again."""
    closing: bool = False
    """It is being deleted: it takes no requests, and its jobs are stopped."""

    @property
    def topic_name(self) -> str:
        return self.given.get("topic") or f"inference-{self.stage}"


class InferenceState(StrEnum):
    QUEUED = "QUEUED"
    """It waits for a slot; there is no training job yet."""
    ACTIVE = "ACTIVE"
    """It holds a slot, from the making of its training job to that one's end."""
    ENDED = "ENDED"
    """What there was to be told of it is told, in the same transaction."""


class InferenceJobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted request: a training job once it has a slot."""

    job_name: str
    stage: str
    type: str
    """As the white list has it."""
    state: InferenceState
    topic_arn: str
    """Where its end is told, even if the service is gone by then."""
    definition: dict[str, Any]
    """What CreateTrainingJob is given."""
    created_at: float
    job_id: str | None = None
    """The training job's; None before there is one."""
    status: JobStatus | None = None
    """With the rest below: how it ended. The training job may be deleted then."""
    secondary: SecondaryStatus | None = None
    started_at: float | None = None
    ended_at: float | None = None
    failure_reason: str | None = None
    result_uri: str | None = None
    notice_id: str | None = None
    """`<job>:<status>`, where its end was told."""


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with an Idempotency-Key was answered."""

    stage: str
    api_key: str
    """Whose it was, by the key's name; empty: nobody's."""
    idempotency_key: str
    body_sha256: str
    job_name: str
    remaining: int
    queued: bool
    created_at: float


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key that opens the services."""

    name: str
    key_sha256: str
    """In hexadecimal: the key itself is nowhere."""
    created_at: float
