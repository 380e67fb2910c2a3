"""Records of the inference service: services, their jobs, remembered answers and API keys."""

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
    """described in sagehen.toml, the only place to change it"""
    API = "api"
    """created by a request, such as from `sagehen apply`"""


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A service. Lock its row before making or ending its jobs: no two then take the same slot."""

    stage: str
    source: ServiceSource
    given: dict[str, Any]
    """the settings as given, without defaults"""
    created_at: float
    """seconds since the epoch, like every `_at`"""
    modified_at: float
    emails: tuple[str, ...] = ()
    """addresses subscribed so far: those that unsubscribe are not subscribed again"""
    closing: bool = False
    """being deleted: takes no requests, and its jobs are stopped"""

    @property
    def topic_name(self) -> str:
        return self.given.get("topic") or f"inference-{self.stage}"


class InferenceState(StrEnum):
    QUEUED = "QUEUED"
    """waits for a slot; no training job yet"""
    ACTIVE = "ACTIVE"
    """holds a slot, until its training job ends"""
    ENDED = "ENDED"
    """ended, and its notice was published in the same transaction"""


class InferenceJobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted request: a training job once it has a slot."""

    job_name: str
    stage: str
    type: str
    """as on the white list"""
    state: InferenceState
    topic_arn: str
    """receives the notice of the end, even after the service is deleted"""
    definition: dict[str, Any]
    """parameters of CreateTrainingJob"""
    created_at: float
    job_id: str | None = None
    """the training job's id; None before it exists"""
    status: JobStatus | None = None
    """from here on: how the job ended, kept because the training job may be deleted"""
    secondary: SecondaryStatus | None = None
    started_at: float | None = None
    ended_at: float | None = None
    failure_reason: str | None = None
    result_uri: str | None = None
    notice_id: str | None = None
    """`<job>:<status>` once the notice is published"""


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request with an Idempotency-Key."""

    stage: str
    api_key: str
    """name of the key; empty without one"""
    idempotency_key: str
    body_sha256: str
    job_name: str
    remaining: int
    queued: bool
    created_at: float


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, valid for all services."""

    name: str
    key_sha256: str
    """hexadecimal; the key itself is not stored"""
    created_at: float
