"""Answers of the inference service, in the published profile (byte for byte) or the modern one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from sagehen.base.settings.inference_service import InferenceServiceSettings, filled
from sagehen.services.inference_service import job_store as inference_jobs
from sagehen.services.inference_service.errors import (
    Failed,
    Full,
    KeyReused,
    Malformed,
    Refused,
    Unsupported,
)
from sagehen.services.inference_service.intake import Accepted
from sagehen.services.inference_service.notices import shown_duration, shown_time
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.inference_service.service import Service
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import TrainingJobRecord

__all__ = [
    "FORBIDDEN",
    "NO_TOKEN",
    "ServiceAnswer",
    "accepted_answer",
    "describe",
    "plain_answer",
    "refused_answer",
]

RETRY_SECONDS = 60
"""Retry-After: a guess, as jobs take hours"""

_MODERN: tuple[tuple[type[Refused], int, str], ...] = (
    (Malformed, 400, "InvalidRequest"),
    (Unsupported, 403, "UnsupportedType"),
    (Full, 429, "LimitReached"),
    (KeyReused, 422, "IdempotencyKeyReused"),
    (Failed, 500, "CreationFailed"),
)
_MISSING_TYPE = 'The body must be a JSON object with a "type", a text that is not empty.'


@dataclass(frozen=True)
class ServiceAnswer:
    status: int
    body: Any
    """serialized as JSON"""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        # With json.dumps's default separators and escapes, like the published code.
        return json.dumps(self.body).encode()


FORBIDDEN = ServiceAnswer(403, {"message": "Forbidden"}, {"x-amzn-errortype": "ForbiddenException"})
"""API Gateway's answer to a missing or wrong key"""
NO_TOKEN = ServiceAnswer(
    403,
    {"message": "Missing Authentication Token"},
    {"x-amzn-errortype": "MissingAuthenticationTokenException"},
)
"""API Gateway's answer to an unknown method or path"""


def plain_answer(status: int, message: str) -> ServiceAnswer:
    """Returns an error that neither profile defines."""
    return ServiceAnswer(status, {"message": message})


def accepted_answer(service: Service, accepted: Accepted) -> ServiceAnswer:
    location = {"location": f"/{service.stage}/inference/{accepted.job_name}"}
    settings = service.settings
    if settings.profile == "published":
        text = filled(
            settings.text_accepted,
            jobName=accepted.job_name,
            remaining=accepted.remaining,
            limit=settings.limit,
            type=accepted.type,
        )
        return _published(settings, 200, text, location)
    body = {
        "jobName": accepted.job_name,
        "type": accepted.type,
        "status": "Queued" if accepted.queued else "InProgress",
        "remaining": accepted.remaining,
        "location": location["location"],
    }
    return ServiceAnswer(202, body, location)


def refused_answer(service: Service, refused: Refused) -> ServiceAnswer:
    if service.settings.profile == "published":
        return _published(service.settings, *_published_refusal(service.settings, refused))
    status, code = next(
        (status, code) for kind, status, code in _MODERN if isinstance(refused, kind)
    )
    headers = {"retry-after": str(RETRY_SECONDS)} if isinstance(refused, Full) else {}
    body: dict[str, Any] = {"code": code, "message": str(refused) or _MISSING_TYPE}
    if isinstance(refused, Full):
        body |= {"type": refused.kind, "limit": refused.limit, "remaining": 0}
    return ServiceAnswer(status, body, headers)


def _published_refusal(settings: InferenceServiceSettings, refused: Refused) -> tuple[int, str]:
    if isinstance(refused, Unsupported):
        return 510, filled(settings.text_unsupported, type=refused.kind)
    if isinstance(refused, Full):
        return 502, filled(settings.text_limit, limit=refused.limit, type=refused.kind)
    if isinstance(refused, Failed):
        return 500, str(refused)
    return 501, str(refused) or settings.text_malformed


def _published(
    settings: InferenceServiceSettings,
    status: int,
    text: str,
    headers: Mapping[str, str] | None = None,
) -> ServiceAnswer:
    sent = 200 if settings.always_200 else status
    return ServiceAnswer(sent, {"status": status, "errMsg": text}, headers or {})


def describe(connection: Connection, job: InferenceJobRecord) -> dict[str, Any]:
    """Uses the job's own row once it has ended, its training job before."""
    training = None
    if job.state is InferenceState.ACTIVE:
        training = training_jobs.get(connection, job.job_name)
    described = {
        "jobName": job.job_name,
        "type": job.type,
        **_status_of(job, training),
        "creationTime": shown_time(job.created_at),
        "startTime": shown_time(training.started_at if training else job.started_at),
        "endTime": shown_time(job.ended_at),
        "durationSeconds": shown_duration(job),
        "resultUri": job.result_uri,
        "failureReason": job.failure_reason,
    }
    if job.state is InferenceState.QUEUED:
        described["queuePosition"] = inference_jobs.position(connection, job)
    return described


def _status_of(job: InferenceJobRecord, training: TrainingJobRecord | None) -> dict[str, Any]:
    if job.state is InferenceState.QUEUED:
        return {"status": "Queued", "secondaryStatus": "Queued"}
    if training is not None and training.job_id == job.job_id:
        return {"status": training.status, "secondaryStatus": training.secondary}
    return {"status": job.status, "secondaryStatus": job.secondary}
