"""How many instances the calls to a variant start, as pure functions.

0 ──calls wait──► 1 ──calls wait, and all instances serve──► 2 … ──idle──► 0

Between the least, which provisioned concurrency needs, and the most, which MaxConcurrency needs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from sagehen.frame.container_specs import InstanceReport, InstanceState
from sagehen.frame.instance_types import require_instance_type
from sagehen.frame.routes import DEFAULT_SLOTS
from sagehen.services.sagemaker.hosting.demand import NO_USE, VariantUse
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    VariantPlan,
)

__all__ = ["Followed", "Room", "RunningChange", "follow_demand"]

_GONE = (EndpointStatus.DELETING, EndpointStatus.FAILED)


@dataclass(frozen=True, kw_only=True)
class Room:
    """The room for more instances."""

    idle_seconds: float = math.inf
    """without calls, after which instances stop"""
    free_instances: int = 0
    """of the setting max_endpoint_instances"""
    free_memory_bytes: int = 0
    """of the machine"""


class RunningChange(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, with its inputs for the log."""

    variant: str
    before: int
    after: int
    reason: str
    waiting: int
    peak: int


@dataclass(frozen=True)
class Followed:
    """An endpoint with as many running instances as its calls need."""

    endpoint: EndpointRecord
    changes: tuple[RunningChange, ...] = ()
    wake_at: float | None = None
    """when the next instance is idle for long enough"""


class _Moment(NamedTuple):
    now: float
    deployed_at: float
    """when the endpoint last changed: a variant that was just deployed has had no calls yet"""


@dataclass
class _Work:
    running: dict[str, int] = field(default_factory=dict)
    changes: list[RunningChange] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def follow_demand(
    endpoint: EndpointRecord,
    before: EndpointRecord,
    instances: Sequence[InstanceRecord],
    reports: Mapping[str, InstanceReport] | None,
    uses: Mapping[str, VariantUse],
    room: Room,
    now: float,
) -> Followed:
    """Args:
    endpoint: with its new status.
    before: with its old one.
    instances: without those that are to stop.
    """
    current = endpoint.current
    if current is None or endpoint.status in _GONE:
        return _with_running(endpoint, _Work())
    work = _Work()
    for variant in current.all_variants:
        if not variant.starts_on_demand:
            continue
        own = [each for each in instances if _is_of(each, current, variant)]
        use = uses.get(variant.name, NO_USE)
        running = (endpoint.running or {}).get(variant.name, 0)
        if variant.serverless is not None and _is_new(current, before):
            running = max(1, running)  # the one that has proved that the model starts
        moment = _Moment(now=now, deployed_at=endpoint.modified_at)
        _follow_variant(variant, running, own, reports or {}, use, room, moment, work)
    return _with_running(endpoint, work)


def _follow_variant(
    variant: VariantPlan,
    running: int,
    own: Sequence[InstanceRecord],
    reports: Mapping[str, InstanceReport],
    use: VariantUse,
    room: Room,
    moment: _Moment,
    work: _Work,
) -> None:
    now, since = moment
    slots = _slots(own, reports)
    least, most = _bounds(variant, slots)
    idle_at = max(use.last_used_at, since) + room.idle_seconds
    after, reason = max(running, least), "provisioned concurrency"
    if use.waiting:
        more = _more(variant, after, own, most, use, room)
        if more > after:
            after, reason = more, "calls wait"
    elif now >= idle_at:
        if after > least:
            after, reason = least, "idle"
    else:
        needed = max(least, min(after, 1), math.ceil(use.peak / slots))
        # Of a new deployment, or after a restart, the peak is not known yet.
        if needed < after and now >= max(since, use.since) + room.idle_seconds:
            after, reason = needed, "fewer calls"
    if after > least and not use.waiting:
        work.times.append(idle_at)
    if after:
        work.running[variant.name] = after
    if after != running:
        work.changes.append(
            RunningChange(
                variant=variant.name,
                before=running,
                after=after,
                reason=reason,
                waiting=use.waiting,
                peak=use.peak,
            )
        )


def _more(
    variant: VariantPlan,
    running: int,
    own: Sequence[InstanceRecord],
    most: int,
    use: VariantUse,
    room: Room,
) -> int:
    """Returns how many to run while calls wait."""
    if running == 0:
        return 1 if room.free_instances > 0 else 0
    # Calls that wait for one that starts, or came before it served, are no reason for another.
    all_are_full = use.full_instances >= running and all(
        instance.state is InstanceState.IN_SERVICE for instance in own
    )
    memory = require_instance_type(variant.instance_type).memory_bytes
    fits = room.free_instances > 0 and room.free_memory_bytes >= memory
    return running + 1 if all_are_full and running < most and fits else running


def _bounds(variant: VariantPlan, slots: int) -> tuple[int, int]:
    if variant.serverless is None:
        return 0, 1
    provisioned = variant.serverless.provisioned_concurrency or 0
    return (
        math.ceil(provisioned / slots),
        math.ceil(variant.serverless.max_concurrency / slots),
    )


def _slots(own: Sequence[InstanceRecord], reports: Mapping[str, InstanceReport]) -> int:
    """Returns the requests that an instance works on at once: what the slowest one says."""
    return min(_slots_said(own, reports), default=DEFAULT_SLOTS)


def _slots_said(
    own: Sequence[InstanceRecord], reports: Mapping[str, InstanceReport]
) -> Iterator[int]:
    for instance in own:
        report = reports.get(instance.instance_id)
        if report is not None and report.state is InstanceState.IN_SERVICE:
            said = (report.slots, *(container.slots for container in report.containers))
            yield from (slots for slots in said if slots)


def _is_new(current: Deployment, before: EndpointRecord) -> bool:
    return before.current is None or before.current.deployment_id != current.deployment_id


def _is_of(instance: InstanceRecord, deployment: Deployment, variant: VariantPlan) -> bool:
    return (instance.deployment_id, instance.variant_name) == (
        deployment.deployment_id,
        variant.name,
    )


def _with_running(endpoint: EndpointRecord, work: _Work) -> Followed:
    running = work.running or None
    if running != endpoint.running:
        endpoint = msgspec.structs.replace(endpoint, running=running)
    return Followed(endpoint, tuple(work.changes), min(work.times, default=None))
