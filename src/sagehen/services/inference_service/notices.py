"""Publishes notices of ended jobs; keeps the service's topic and its e-mail subscriptions."""

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import (
    job_store as inference_jobs,
)
from sagehen.services.inference_service import (
    service_store as inference_services,
)
from sagehen.services.inference_service.records import InferenceJobRecord, ServiceRecord
from sagehen.services.inference_service.service import Service
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.confirmation import (
    TOKEN_SECONDS,
    end_subscription,
    new_token,
)
from sagehen.services.messaging.sns.records import (
    Notice,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)

__all__ = ["ensure_topic", "notice_of", "shown_duration", "shown_time", "unsubscribe_addresses"]

_NAMES = uuid.UUID("1d0b6c2e-4f0e-4d0c-9a43-b7f2c0a6e7d1")
"""arbitrary, but must never change"""


def notice_of(job: InferenceJobRecord, now: float) -> Notice:
    """Makes deterministic ids, so that receivers recognize duplicates. E-mail gets plain text, all
    else JSON."""
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
    """Formats as ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_duration(job: InferenceJobRecord) -> float | None:
    """Returns the seconds from the first run of its code to its end."""
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
    facts = "\n".join(f"{name + ':':<10} {value}" for name, value in lines.items() if value)
    return f"Your inference job has ended: {status}.\n\n{facts}"


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


_BY_A_SERVICE = uuid.UUID("6a1b8f0e-5a0c-4f0e-9d54-2f9d6a3c7e11")


def ensure_topic(
    connection: Connection, service: Service, topic_arn: str, now: float
) -> ServiceRecord:
    """Makes a missing topic and subscribes new addresses.

    Those that unsubscribed stay so, unless the topic itself had gone.
    """
    topic = TopicRecord(arn=topic_arn, created_at=now, attributes={})
    is_new = topics.insert(connection, topic)
    known = () if is_new else service.record.emails
    for address in service.settings.emails:
        if address not in known:
            _subscribe(connection, topic_arn, address, now)
    return msgspec.structs.replace(service.record, emails=service.settings.emails)


def unsubscribe_addresses(
    connection: Connection, old_record: ServiceRecord, service: Service, arns: ArnMaker, now: float
) -> ServiceRecord:
    """Ends subscriptions that the settings dropped or that are at a former topic.

    Spares those that no service made, or that another service wants; also those at a former topic
    if the service still has jobs, which are announced there.
    """
    moved = old_record.topic_name != service.record.topic_name
    orphaned = moved and not _has_jobs(connection, old_record.stage)
    desired = () if orphaned else service.settings.emails
    others = {
        address
        for other in inference_services.all_services(connection)
        if other.stage != old_record.stage and other.topic_name == old_record.topic_name
        for address in other.emails
    }
    topic_arn = arns.sns(old_record.topic_name)
    for address in old_record.emails:
        if address not in desired and address not in others:
            subscription = subscriptions.find(connection, topic_arn, "email", address)
            if subscription is not None and subscription.arn == _own_arn(
                topic_arn, address, subscription.created_at
            ):
                end_subscription(connection, subscription, now)
    remaining = (
        () if moved else tuple(address for address in old_record.emails if address in desired)
    )
    return msgspec.structs.replace(service.record, emails=remaining)


def _has_jobs(connection: Connection, stage: str) -> bool:
    active = inference_jobs.active_by_type(connection, stage)
    return bool(active) or inference_jobs.queued(connection, stage) > 0


def _own_arn(topic_arn: str, address: str, created_at: float) -> str:
    """Returns an ARN that shows that a service made the subscription."""
    return f"{topic_arn}:{uuid.uuid5(_BY_A_SERVICE, f'{topic_arn} {address} {created_at!r}')}"


def _subscribe(connection: Connection, topic_arn: str, address: str, now: float) -> None:
    """Confirms at once: whoever changes the settings may decide who gets mail."""
    record = SubscriptionRecord(
        arn=_own_arn(topic_arn, address, now),
        topic_arn=topic_arn,
        protocol="email",
        endpoint=address,
        state=SubscriptionState.CONFIRMED,
        created_at=now,
        attributes={},
        token=new_token(),
        token_expires_at=now + TOKEN_SECONDS,
        confirmed_by_owner=True,
    )
    subscriptions.insert(connection, record)
