"""The next step of one endpoint, as pure functions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import msgspec

from sagehen.base.retry import LONGEST_BACKOFF_SECONDS, backoff_seconds
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.services.sagemaker.hosting.demand import VariantUse
from sagehen.services.sagemaker.hosting.reconciler.advance import (
    VariantKey,
    advance,
    desired_variants,
    variant_key,
)
from sagehen.services.sagemaker.hosting.reconciler.on_demand import (
    Followed,
    Room,
    RunningChange,
    follow_demand,
)
from sagehen.services.sagemaker.hosting.records import (
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    VariantPlan,
)
from sagehen.services.sagemaker.offline_results.stores import NO_STORES, StoreStates

__all__ = [
    "DRAIN_LOOK_SECONDS",
    "DRAIN_SECONDS",
    "EndpointStep",
    "Facts",
    "Reports",
    "Retry",
    "leftovers",
    "plan",
]

DRAIN_SECONDS = 1.0
"""seconds between leaving the routes and being stopped; gateways read the routes every 50 ms"""
DELETED_DRAIN_SECONDS = 0.25
"""the same for a deleted endpoint: late requests fail anyway, and the name is free sooner"""
DRAIN_LOOK_SECONDS = 0.5
"""between looks at the requests of an instance that leaves"""

Reports = Mapping[str, InstanceReport]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a failed instance was retried, and when to retry next.

    In memory only: a restarted control begins with the shortest wait.
    """

    attempts: int
    at: float
    """seconds since the epoch"""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about one endpoint."""

    endpoint: EndpointRecord | None
    """None for instances of a deleted endpoint."""
    instances: tuple[InstanceRecord, ...]
    reports: Reports | None
    """None while the agent is away."""
    retries: Mapping[str, Retry]
    """By id: instances that failed in service."""
    busy: frozenset[str] = frozenset()
    """Ids of instances with asynchronous requests, which may take an hour."""
    called: frozenset[str] = frozenset()
    """Ids of instances with requests of gateways."""
    drain_seconds: float = 0.0
    """The longest time that an instance goes on for these after it has left the routes."""
    leaving: frozenset[str] = frozenset()
    """Ids of instances on machines that are drained: others replace them first."""
    stores: StoreStates = NO_STORES
    uses: Mapping[str, VariantUse] = field(default_factory=dict)
    """By name: calls to variants that start on demand."""
    room: Room = field(default_factory=Room)
    now: float


@dataclass(frozen=True, kw_only=True)
class EndpointStep:
    """The next changes, made in this order: rows, routes, agent."""

    endpoint: EndpointRecord | None = None
    gone: EndpointRecord | None = None
    """The record to delete, with its tags."""
    added: tuple[InstanceRecord, ...] = ()
    changed: tuple[InstanceRecord, ...] = ()
    dropped: tuple[str, ...] = ()
    start: tuple[InstanceSpec, ...] = ()
    """Asking the agent twice is harmless."""
    stop: tuple[str, ...] = ()
    draining: frozenset[str] = frozenset()
    """Instances that have left and still have requests of gateways."""
    cut_off: frozenset[str] = frozenset()
    """Those of `stop` that still have requests of gateways, as their time is over."""
    retries: Mapping[str, Retry] = field(default_factory=dict)
    """Replaces `Facts.retries`."""
    running: tuple[RunningChange, ...] = ()
    """Why instances were started or stopped by calls, for the log."""
    wake_at: float | None = None
    idle_at: float | None = None
    """when instances that calls have started may have been idle for long enough"""

    @property
    def writes(self) -> bool:
        return bool(self.endpoint or self.gone or self.added or self.changed or self.dropped)


def plan(facts: Facts, new_id: Callable[[], str]) -> EndpointStep:
    """Plans an endpoint's next step; repeated, this ends at the desired state.

    Args:
        new_id: returns a new instance id.
    """
    observed = tuple(_with_report(instance, facts.reports) for instance in facts.instances)
    active = tuple(instance for instance in observed if instance.stop_at is None)
    endpoint = facts.endpoint and advance(
        facts.endpoint, active, facts.retries, facts.now, facts.stores
    )
    followed = _follow(endpoint, active, facts)
    endpoint = followed.endpoint if followed else None
    desired = desired_variants(endpoint)
    surplus = _surplus(active, desired, facts)
    stop_at = facts.now + _drain_seconds(endpoint)
    after = tuple(
        _retired(instance, stop_at, facts.now) if instance.instance_id in surplus else instance
        for instance in observed
    )
    staying = tuple(each for each in after if each.instance_id not in facts.leaving)
    added = _missing(endpoint.name, desired, staying, new_id) if endpoint else ()
    dropped = _dropped(after, facts.reports)
    after = tuple(instance for instance in after if instance.instance_id not in dropped) + added
    retries = _retries(after, endpoint, facts)
    draining = _draining(after, facts, endpoint)
    stop = _to_stop(after, facts, draining | facts.busy if _stays(endpoint) else frozenset())
    gone = endpoint is not None and endpoint.status is EndpointStatus.DELETING and not after
    return EndpointStep(
        endpoint=None if gone or endpoint == facts.endpoint else endpoint,
        gone=endpoint if gone else None,
        added=added,
        changed=_changed(facts.instances, after),
        dropped=dropped,
        start=_to_start(after, facts, retries),
        stop=stop,
        draining=draining,
        cut_off=facts.called.intersection(stop) if _stays(endpoint) else frozenset(),
        retries=retries,
        running=followed.changes if followed else (),
        wake_at=_wake_at(after, retries, facts.now, bool(draining)),
        idle_at=followed.wake_at if followed else None,
    )


def _follow(
    endpoint: EndpointRecord | None, active: tuple[InstanceRecord, ...], facts: Facts
) -> Followed | None:
    if endpoint is None or facts.endpoint is None:
        return None
    return follow_demand(
        endpoint, facts.endpoint, active, facts.reports, facts.uses, facts.room, facts.now
    )


def leftovers(instance_ids: Set[str], reports: Reports) -> tuple[str, ...]:
    """Returns instances of the agent without a row.

    Read `instance_ids` after `reports`: rows are written before instances start.
    """
    return tuple(
        key
        for key in sorted(reports.keys() - instance_ids)
        if reports[key].state is not InstanceState.STOPPING
    )


def _with_report(instance: InstanceRecord, reports: Reports | None) -> InstanceRecord:
    """Adds the agent's report; an unknown instance starts anew, for the agent was restarted."""
    if reports is None:
        return instance
    report = reports.get(instance.instance_id)
    return msgspec.structs.replace(
        instance,
        state=report.state if report else InstanceState.STARTING,
        address=report.address if report else None,
        failure_reason=report.failure_reason if report else None,
    )


def _surplus(
    active: tuple[InstanceRecord, ...],
    desired: Mapping[VariantKey, VariantPlan],
    facts: Facts,
) -> set[str]:
    """Returns the ids of excess instances; those in service are kept first, then busy ones, then
    those with requests. Those that leave are kept until as many others are in service."""
    leaving = facts.leaving
    groups: defaultdict[VariantKey, list[InstanceRecord]] = defaultdict(list)
    for instance in active:
        groups[variant_key(instance)].append(instance)
    surplus: set[str] = set()
    for key, group in groups.items():
        group.sort(
            key=lambda instance: (
                instance.state is not InstanceState.IN_SERVICE,
                instance.instance_id not in facts.busy,
                instance.instance_id not in facts.called,
                instance.instance_id,
            )
        )
        keep = desired[key].instance_count if key in desired else 0
        staying = [each for each in group if each.instance_id not in leaving]
        serving = sum(each.state is InstanceState.IN_SERVICE for each in staying[:keep])
        departing = [each for each in group if each.instance_id in leaving]
        excess = (*staying[keep:], *departing[keep - serving :])
        surplus.update(instance.instance_id for instance in excess)
    return surplus


def _drain_seconds(endpoint: EndpointRecord | None) -> float:
    return DRAIN_SECONDS if _stays(endpoint) else DELETED_DRAIN_SECONDS


def _stays(endpoint: EndpointRecord | None) -> bool:
    """Nobody waits for the requests of a deleted endpoint."""
    return endpoint is not None and endpoint.status is not EndpointStatus.DELETING


def _retired(instance: InstanceRecord, stop_at: float, now: float) -> InstanceRecord:
    """Sets when to stop; now, if no gateway can be sending to it."""
    serves = instance.state is InstanceState.IN_SERVICE
    return msgspec.structs.replace(instance, stop_at=stop_at if serves else now)


def _missing(
    endpoint_name: str,
    desired: Mapping[VariantKey, VariantPlan],
    instances: tuple[InstanceRecord, ...],
    new_id: Callable[[], str],
) -> tuple[InstanceRecord, ...]:
    present = Counter(variant_key(instance) for instance in instances if instance.stop_at is None)
    return tuple(
        _new_instance(endpoint_name, deployment_id, variant, new_id())
        for (deployment_id, name), variant in desired.items()
        for _ in range(variant.instance_count - present[deployment_id, name])
    )


def _new_instance(
    endpoint_name: str, deployment_id: str, variant: VariantPlan, instance_id: str
) -> InstanceRecord:
    spec = InstanceSpec(
        instance_id=instance_id,
        endpoint_name=endpoint_name,
        variant_name=variant.name,
        instance_type=variant.instance_type,
        containers=variant.containers,
        startup_timeout_seconds=variant.startup_timeout_seconds,
        download_timeout_seconds=variant.download_timeout_seconds,
    )
    return InstanceRecord(
        instance_id=instance_id,
        endpoint_name=endpoint_name,
        deployment_id=deployment_id,
        variant_name=variant.name,
        spec=spec,
    )


def _dropped(instances: tuple[InstanceRecord, ...], reports: Reports | None) -> tuple[str, ...]:
    if reports is None:
        return ()
    return tuple(
        instance.instance_id
        for instance in instances
        if instance.stop_at is not None and instance.instance_id not in reports
    )


def _changed(
    before: tuple[InstanceRecord, ...], after: tuple[InstanceRecord, ...]
) -> tuple[InstanceRecord, ...]:
    stored = {instance.instance_id: instance for instance in before}
    return tuple(
        instance
        for instance in after
        if instance.instance_id in stored and instance != stored[instance.instance_id]
    )


def _retries(
    instances: tuple[InstanceRecord, ...], endpoint: EndpointRecord | None, facts: Facts
) -> dict[str, Retry]:
    current = endpoint.current.deployment_id if endpoint and endpoint.current else None
    retries: dict[str, Retry] = {}
    for instance in instances:
        retry = facts.retries.get(instance.instance_id)
        if instance.stop_at is not None or instance.deployment_id != current:
            continue
        if instance.state is InstanceState.FAILED and _is_due(retry, facts.now):
            attempts = retry.attempts + 1 if retry else 0
            retry = Retry(attempts=attempts, at=facts.now + backoff_seconds(attempts))
        if retry is not None and instance.state is not InstanceState.IN_SERVICE:
            retries[instance.instance_id] = retry
    return retries


def _is_due(retry: Retry | None, now: float) -> bool:
    # Like `_is_past`: the clock may be set back.
    return retry is None or retry.at <= now or retry.at > now + LONGEST_BACKOFF_SECONDS


def _to_start(
    instances: tuple[InstanceRecord, ...], facts: Facts, retries: Mapping[str, Retry]
) -> tuple[InstanceSpec, ...]:
    if facts.reports is None:
        return ()
    again = {
        instance_id
        for instance_id, retry in retries.items()
        if instance_id in facts.retries and retry != facts.retries[instance_id]
    }
    return tuple(
        instance.spec
        for instance in instances
        if instance.stop_at is None
        and (instance.instance_id not in facts.reports or instance.instance_id in again)
    )


def _to_stop(
    instances: tuple[InstanceRecord, ...], facts: Facts, busy: frozenset[str]
) -> tuple[str, ...]:
    if facts.reports is None:
        return ()
    return tuple(
        instance.instance_id
        for instance in instances
        if instance.stop_at is not None
        and _is_past(instance.stop_at, facts.now)
        and instance.state is not InstanceState.STOPPING
        and instance.instance_id not in busy
    )


def _draining(
    instances: tuple[InstanceRecord, ...], facts: Facts, endpoint: EndpointRecord | None
) -> frozenset[str]:
    """Returns the instances that leave, and go on for the requests of gateways."""
    if not _stays(endpoint):
        return frozenset()
    return frozenset(
        instance.instance_id
        for instance in instances
        if instance.stop_at is not None
        and instance.instance_id in facts.called
        and instance.state is not InstanceState.STOPPING
        and facts.now < instance.stop_at + facts.drain_seconds
    )


def _is_past(stop_at: float, now: float) -> bool:
    # A time further off means that the clock was set back.
    return stop_at <= now or stop_at > now + DRAIN_SECONDS


def _wake_at(
    instances: tuple[InstanceRecord, ...],
    retries: Mapping[str, Retry],
    now: float,
    is_draining: bool,
) -> float | None:
    failed = {
        instance.instance_id for instance in instances if instance.state is InstanceState.FAILED
    }
    times = [
        instance.stop_at
        for instance in instances
        if instance.stop_at is not None and instance.stop_at > now
    ]
    times += [retry.at for instance_id, retry in retries.items() if instance_id in failed]
    if is_draining:
        times.append(now + DRAIN_LOOK_SECONDS)
    return min(times, default=None)
