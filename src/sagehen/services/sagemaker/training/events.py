"""EventBridge's 'SageMaker Training Job State Change'."""

import uuid
from collections.abc import Mapping
from typing import Any

from sagehen.frame.arns import ArnMaker
from sagehen.services.messaging.events.records import Event
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.records import TrainingJobRecord, Transition

__all__ = ["training_event"]

_COPIED = (
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
)
_EVENTS = uuid.UUID("5b7c5a0e-4b0c-4f0e-9d60-3d1f5a1c9a10")
"""Arbitrary, but must never change."""


def training_event(
    record: TrainingJobRecord, tags: Mapping[str, str], arns: ArnMaker, now: float
) -> Event:
    """Returns the event of the record's last transition; the same transition gives the same event
    id.

    Source: SageMaker's guide, "Automating with EventBridge". Times are strings of milliseconds.
    """
    number = len(record.transitions)
    return Event(
        event_id=str(uuid.uuid5(_EVENTS, f"{record.job_id}:{number}")),
        source="aws.sagemaker",
        detail_type="SageMaker Training Job State Change",
        account=arns.account_id,
        region=arns.region,
        happened_at=record.transitions[-1].started_at,
        put_at=now,
        resources=(record.arn,),
        detail=_detail(record, tags),
    )


def _detail(record: TrainingJobRecord, tags: Mapping[str, str]) -> dict[str, Any]:
    definition = record.definition
    detail: dict[str, Any] = {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "TrainingJobStatus": record.status.value,
        "SecondaryStatus": record.secondary.value,
        "FailureReason": record.failure_reason if record.status is JobStatus.FAILED else None,
        **{member: definition.get(member) for member in _COPIED},
        "VpcConfig": definition.get("VpcConfig", {}),
        "CreationTime": _milliseconds(record.created_at),
        "TrainingStartTime": _milliseconds(record.started_at),
        "TrainingEndTime": _milliseconds(record.ended_at),
        "LastModifiedTime": _milliseconds(record.modified_at),
        "SecondaryStatusTransitions": [
            _transition(transition) for transition in record.transitions
        ],
        "Tags": dict(tags),
    }
    return {member: value for member, value in detail.items() if value is not None}


def _transition(transition: Transition) -> dict[str, Any]:
    members = {
        "Status": transition.status.value,
        "StartTime": _milliseconds(transition.started_at),
        "EndTime": _milliseconds(transition.ended_at),
        "StatusMessage": transition.message,
    }
    return {member: value for member, value in members.items() if value is not None}


def _milliseconds(at: float | None) -> str | None:
    return None if at is None else str(round(at * 1000))
