"""Describes scalable targets for `sagehen status`."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Connection

from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.dimensions import DIMENSIONS

__all__ = ["ScalingStatus", "read_scaling"]


@dataclass(frozen=True, kw_only=True)
class ScalingStatus:
    """A scalable target."""

    dimension: str
    count: str
    """what is counted, in words"""
    minimum: int
    maximum: int
    policies: int
    reason: str | None
    """why the last decision was made, as sentences"""
    decided_at: float | None


def read_scaling(connection: Connection) -> dict[tuple[str, str], list[ScalingStatus]]:
    """Returns the scalable targets by the names of their endpoint and variant."""
    targets = store.all_targets(connection)
    policies = store.count_policies(connection) if targets else Counter()
    statuses: dict[tuple[str, str], list[ScalingStatus]] = {}
    for target in targets:
        dimension = DIMENSIONS[target.dimension]
        match = dimension.resource_id.fullmatch(target.resource_id)
        if match is None or "VariantName" not in match.groupdict():
            continue
        status = ScalingStatus(
            dimension=target.dimension,
            count=dimension.count,
            minimum=target.minimum,
            maximum=target.maximum,
            policies=policies[target.target_id],
            reason=target.last_decision,
            decided_at=target.decided_at,
        )
        statuses.setdefault((match["EndpointName"], match["VariantName"]), []).append(status)
    return statuses
