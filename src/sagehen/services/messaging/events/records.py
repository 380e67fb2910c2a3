"""Events: what EventBridge's rules are asked about, and those rules."""

from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["BUS", "Event", "EventResource", "RuleRecord", "TargetRecord"]

BUS = "default"
"""The one bus there is."""

ENABLED, DISABLED = "ENABLED", "DISABLED"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event on the default bus."""

    event_id: str
    """A UUID; the same on every delivery and every retry."""
    source: str
    """`aws.sagemaker`, for example."""
    detail_type: str
    account: str
    region: str
    happened_at: float
    """Seconds since the epoch."""
    resources: tuple[str, ...] = ()
    detail: dict[str, Any] = {}
    put_at: float | None = None
    """When it is sent on its way, where that is another time than when it happened."""

    @property
    def sent_at(self) -> float:
        return self.happened_at if self.put_at is None else self.put_at

    def envelope(self) -> dict[str, Any]:
        """As rules and targets see it: EventBridge's keys in their order, version 0."""
        moment = datetime.fromtimestamp(self.happened_at, UTC)
        return {
            "version": "0",
            "id": self.event_id,
            "detail-type": self.detail_type,
            "source": self.source,
            "account": self.account,
            "time": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
            "region": self.region,
            "resources": list(self.resources),
            "detail": self.detail,
        }


class RuleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the default bus."""

    name: str
    arn: str
    state: str
    """`ENABLED` or `DISABLED`."""
    event_pattern: str
    """JSON, as it was given."""
    description: str | None = None
    role_arn: str | None = None
    created_at: float


class EventResource(msgspec.Struct, frozen=True, kw_only=True):
    """A connection or an API destination."""

    name: str
    arn: str
    """Ends in an id that is never used again, unlike the name."""
    definition: dict[str, Any]
    """What it was created with, and what of it was updated since."""
    created_at: float
    modified_at: float


class TargetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the events of a rule go."""

    rule_name: str
    target_id: str
    target_arn: str
    """A topic's, a queue's or an API destination's ARN, or a URL."""
    definition: dict[str, Any]
    """What PutTargets was given."""
    secret: str | None = None
    """Of webhooks: what their deliveries are signed with."""
