"""Events: what EventBridge's rules are asked about."""

from typing import Any

import msgspec

__all__ = ["Event"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event on the default bus; `to_json` of it is in EventBridge's envelope, version 0."""

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
