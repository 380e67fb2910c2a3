"""EventBridge's 'SageMaker Transform Job State Change'."""

import uuid
from collections.abc import Mapping
from typing import Any

from sagehen.frame.arns import ArnMaker
from sagehen.services.messaging.events.records import Event
from sagehen.services.sagemaker.transform.description import describe
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord

__all__ = ["transform_event"]

_EVENTS = uuid.UUID("c2f0a8a4-4c0d-4f6d-9c5c-3a2a7e2f9d11")
"""Arbitrary, but must never change."""
_TIMES = ("CreationTime", "TransformStartTime", "TransformEndTime")


def transform_event(
    record: TransformJobRecord, tags: Mapping[str, str], arns: ArnMaker, now: float
) -> Event:
    """Returns the event of a job's status; the same status gives the same event id.

    Source: SageMaker's guide, "Automating with EventBridge": the detail is that of
    DescribeTransformJob, with times as strings of milliseconds.
    """
    return Event(
        event_id=str(uuid.uuid5(_EVENTS, f"{record.job_id}:{record.status}")),
        source="aws.sagemaker",
        detail_type="SageMaker Transform Job State Change",
        account=arns.account_id,
        region=arns.region,
        happened_at=record.modified_at,
        put_at=now,
        resources=(record.arn,),
        detail=_detail(record, tags),
    )


def _detail(record: TransformJobRecord, tags: Mapping[str, str]) -> dict[str, Any]:
    detail = describe(record)
    for member in _TIMES:
        if member in detail:
            detail[member] = str(round(detail[member].timestamp() * 1000))
    return {**detail, "Tags": dict(tags)}
