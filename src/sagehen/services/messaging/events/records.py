"""Records of EventBridge's resources and events."""

from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = [
    "BUS",
    "DISABLED",
    "ENABLED",
    "Event",
    "EventResource",
    "RuleRecord",
    "TargetRecord",
    "read_target_address",
    "target_address",
]

BUS = "default"
"""the only bus"""

ENABLED, DISABLED = "ENABLED", "DISABLED"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the default bus."""

    event_id: str
    """UUID; same on every delivery and retry"""
    source: str
    detail_type: str
    account: str
    region: str
    happened_at: float
    """seconds since the epoch"""
    resources: tuple[str, ...] = ()
    detail: dict[str, Any] = {}
    trace_header: str | None = None
    """X-Amzn-Trace-Id"""
    put_at: float | None = None
    """if not sent at `happened_at`"""

    @property
    def sent_at(self) -> float:
        return self.happened_at if self.put_at is None else self.put_at

    def envelope(self) -> dict[str, Any]:
        """Returns EventBridge's JSON, with keys in its order."""
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
    """`ENABLED` or `DISABLED`"""
    event_pattern: str
    description: str | None = None
    role_arn: str | None = None
    created_at: float


class EventResource(msgspec.Struct, frozen=True, kw_only=True):
    """A connection or an API destination."""

    name: str
    arn: str
    """ends in an id that is never reused, unlike the name"""
    definition: dict[str, Any]
    created_at: float
    modified_at: float


class TargetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a rule."""

    rule_name: str
    target_id: str
    target_arn: str
    """URL, or ARN of a topic, queue or API destination"""
    definition: dict[str, Any]
    """as given to PutTargets"""
    secret: str | None = None
    """signs deliveries; webhooks only"""


def target_address(rule: RuleRecord, target_id: str) -> str:
    """Returns the address of a target's deliveries in the outbox."""
    return f"{rule.arn.replace(':rule/', ':target/', 1)}/{target_id}"


def read_target_address(address: str) -> tuple[str, str]:
    """Returns rule name and target id; neither can contain a slash."""
    _, rule_name, target_id = address.rsplit("/", 2)
    return rule_name, target_id
