"""What is told of a job's end: once, to the service's topic."""

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from sagehen.domain.inference_service import InferenceJobRecord
from sagehen.domain.notices import MessageAttribute, Notice

__all__ = ["notice_of", "shown_duration", "shown_time"]

_NAMES = uuid.UUID("1d0b6c2e-4f0e-4d0c-9a43-b7f2c0a6e7d1")
"""Any, as long as it is always this one."""


def notice_of(job: InferenceJobRecord, now: float) -> Notice:
    """The notice of a job that has ended.

    Its ids are the same whoever makes it and however often: who gets it twice knows by that.
    Subscribers by e-mail get a text to read, all others JSON.
    """
    event_id = f"{job.job_name}:{job.status}"
    texts = {
        "default": msgspec.json.encode(_facts(job, event_id)).decode(),
        "email": _letter(job, event_id),
    }
    return Notice(
        message_id=str(uuid.uuid5(_NAMES, event_id)),
        topic_arn=job.topic_arn,
        message=msgspec.json.encode(texts).decode(),
        published_at=now,
        subject=f"Inference job {job.job_name}: {job.status}"[:100],
        structure="json",
        attributes={
            "type": MessageAttribute("String", job.type),
            "status": MessageAttribute("String", str(job.status)),
        },
    )


def shown_time(seconds: float | None) -> str | None:
    """As ISO 8601, in UTC, to the millisecond."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_duration(job: InferenceJobRecord) -> float | None:
    """Seconds from when its code first ran to its end; None where it never did."""
    if job.started_at is None or job.ended_at is None:
        return None
    return round(max(0.0, job.ended_at - job.started_at), 3)


def _facts(job: InferenceJobRecord, event_id: str) -> dict[str, Any]:
    return {
        "eventId": event_id,
        "jobName": job.job_name,
        "type": job.type,
        "status": job.status,
        "secondaryStatus": job.secondary,
        "creationTime": shown_time(job.created_at),
        "startTime": shown_time(job.started_at),
        "endTime": shown_time(job.ended_at),
        "durationSeconds": shown_duration(job),
        "resultUri": job.result_uri,
        "failureReason": job.failure_reason,
    }


def _letter(job: InferenceJobRecord, event_id: str) -> str:
    status = str(job.status)
    if job.secondary is not None and str(job.secondary) != status:
        status = f"{status} ({job.secondary})"
    lines = {
        "Model": job.type,
        "Job": job.job_name,
        "Status": status,
        "Accepted": _plain_time(job.created_at),
        "Started": _plain_time(job.started_at) or "never",
        "Ended": _plain_time(job.ended_at),
        "Duration": _plain_duration(shown_duration(job)),
        "Result": job.result_uri or "none",
        "Reason": job.failure_reason,
        "Event": event_id,
    }
    told = "\n".join(f"{name + ':':<10} {value}" for name, value in lines.items() if value)
    return f"Your inference job has ended: {status}.\n\n{told}"


def _plain_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _plain_duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(hours or minutes)
    return " ".join([*parts, f"{rest} s"])
