"""Records of services, their jobs, remembered answers and API keys."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.records import SecondaryStatus

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
    """only sagehen.toml can change it"""
    API = "api"
    """by a request, as of `sagehen apply`"""


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A service. Lock its row to make or end jobs: no two then take the same slot."""

    stage: str
    source: ServiceSource
    given: dict[str, Any]
    """without defaults"""
    created_at: float
    """seconds since the epoch, like every `_at`"""
    modified_at: float
    emails: tuple[str, ...] = ()
    """addresses subscribed so far; those that unsubscribe are not subscribed again"""
    closing: bool = False
    """takes no requests; jobs are being stopped"""

    @property
    def topic_name(self) -> str:
        return self.given.get("topic") or f"inference-{self.stage}"


class InferenceState(StrEnum):
    QUEUED = "QUEUED"
    """waits for a slot"""
    ACTIVE = "ACTIVE"
    """has a training job that has not ended"""
    ENDED = "ENDED"
    """its notice was published in the same transaction"""


class InferenceJobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted request."""

    job_name: str
    stage: str
    type: str
    """as on the white list"""
    state: InferenceState
    topic_arn: str
    """for the notice of its end"""
    definition: dict[str, Any]
    """parameters of CreateTrainingJob"""
    created_at: float
    job_id: str | None = None
    """of the training job, once it exists"""
    status: JobStatus | None = None
    """from here on: the end, kept because training jobs may be deleted"""
    secondary: SecondaryStatus | None = None
    started_at: float | None = None
    ended_at: float | None = None
    failure_reason: str | None = None
    result_uri: str | None = None
    notice_id: str | None = None
    """`<job>:<status>` once published"""


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an Idempotency-Key."""

    stage: str
    api_key: str
    """its name; empty without one"""
    idempotency_key: str
    body_sha256: str
    job_name: str
    remaining: int
    queued: bool
    created_at: float


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key for all services."""

    name: str
    key_sha256: str
    """hexadecimal; the key is not stored"""
    created_at: float
