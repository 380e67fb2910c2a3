"""EventBridge's 'SageMaker Endpoint State Change'."""

import uuid
from collections.abc import Mapping
from typing import Any

from sagehen.services.messaging.events.records import Event
from sagehen.services.sagemaker.hosting.records import (
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)

__all__ = ["endpoint_event"]

_STATUSES = {
    EndpointStatus.CREATING: "CREATING",
    EndpointStatus.IN_SERVICE: "IN_SERVICE",
    EndpointStatus.UPDATING: "UPDATING",
    EndpointStatus.FAILED: "FAILED",
    EndpointStatus.DELETING: "DELETING",
}
"""In upper case, unlike in the API."""


def endpoint_event(record: EndpointRecord, tags: Mapping[str, str], now: float) -> Event:
    """Returns the event of the record's current status.

    Source: SageMaker's guide, "Automating with EventBridge". Times are milliseconds.
    """
    _, _, _, region, account, _ = record.arn.split(":", 5)
    shown = record.target or record.current
    detail: dict[str, Any] = {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "EndpointConfigName": shown and shown.config_name,
        "ProductionVariants": [_variant(variant) for variant in shown.variants] if shown else None,
        "EndpointStatus": _STATUSES[record.status],
        "FailureReason": record.failure_reason,
        "CreationTime": round(record.created_at * 1000),
        "LastModifiedTime": round(record.modified_at * 1000),
        "Tags": dict(tags),
    }
    return Event(
        event_id=str(uuid.uuid4()),
        source="aws.sagemaker",
        detail_type="SageMaker Endpoint State Change",
        account=account,
        region=region,
        happened_at=now,
        resources=(record.arn,),
        detail={member: value for member, value in detail.items() if value is not None},
    )


def _variant(variant: VariantPlan) -> dict[str, Any]:
    return {
        "VariantName": variant.name,
        "DesiredWeight": variant.weight,
        "DesiredInstanceCount": variant.instance_count,
    }
