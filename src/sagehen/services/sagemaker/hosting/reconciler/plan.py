"""The next step of one endpoint, as pure functions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from sagehen.base.retry import LONGEST_BACKOFF_SECONDS, Retry, backoff_seconds
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.services.sagemaker.hosting.reconciler.advance import (
    VariantKey,
    advance,
    variant_key,
    wanted_variants,
)
from sagehen.services.sagemaker.hosting.records import (
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    VariantPlan,
)

__all__ = ["LET_GO_SECONDS", "EndpointStep", "Facts", "Reports", "leftovers", "plan"]

LET_GO_SECONDS = 1.0
"""From leaving the routes to being stopped; gateways read the routes every 50 ms."""
DELETED_LET_GO_SECONDS = 0.25
"""The same if the endpoint is deleted: late requests fail anyway, and the name is free sooner."""

Reports = Mapping[str, InstanceReport]


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
    retries: Mapping[str, Retry] = field(default_factory=dict)
    """Replaces `Facts.retries`."""
    wake_at: float | None = None

    @property
    def writes(self) -> bool:
        return bool(self.endpoint or self.gone or self.added or self.changed or self.dropped)


def plan(facts: Facts, new_id: Callable[[], str]) -> EndpointStep:
    """Plan an endpoint's next step; repeated, this ends at the desired state.

    Args:
        new_id: returns a new instance id.
    """
    heard = tuple(_heard(one, facts.reports) for one in facts.instances)
    active = tuple(one for one in heard if one.stop_at is None)
    endpoint = facts.endpoint and advance(facts.endpoint, active, facts.retries, facts.now)
    wanted = wanted_variants(endpoint)
    surplus = _surplus(active, wanted, facts.busy)
    stop_at = facts.now + _let_go_seconds(endpoint)
    after = tuple(
        _retired(one, stop_at, facts.now) if one.instance_id in surplus else one for one in heard
    )
    added = _missing(endpoint.name, wanted, after, new_id) if endpoint else ()
    dropped = _dropped(after, facts.reports)
    after = tuple(one for one in after if one.instance_id not in dropped) + added
    retries = _retries(after, endpoint, facts)
    gone = endpoint is not None and endpoint.status is EndpointStatus.DELETING and not after
    return EndpointStep(
        endpoint=None if gone or endpoint == facts.endpoint else endpoint,
        gone=endpoint if gone else None,
        added=added,
        changed=_changed(facts.instances, after),
        dropped=dropped,
        start=_to_start(after, facts, retries),
        stop=_to_stop(after, facts, endpoint),
        retries=retries,
        wake_at=_wake_at(after, retries, facts.now),
    )


def leftovers(instance_ids: set[str], reports: Reports) -> tuple[str, ...]:
    """Returns instances of the agent without a row.

    Read `instance_ids` after `reports`: rows are written before instances start.
    """
    return tuple(
        one.instance_id
        for one in reports.values()
        if one.instance_id not in instance_ids and one.state is not InstanceState.STOPPING
    )


def _heard(instance: InstanceRecord, reports: Reports | None) -> InstanceRecord:
    """Add the agent's report; an unknown instance starts anew, for the agent was restarted."""
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
    wanted: Mapping[VariantKey, VariantPlan],
    busy: frozenset[str],
) -> set[str]:
    """Returns the ids of excess instances; those in service are kept first, then busy ones."""
    groups: defaultdict[VariantKey, list[InstanceRecord]] = defaultdict(list)
    for one in active:
        groups[variant_key(one)].append(one)
    surplus: set[str] = set()
    for key, group in groups.items():
        group.sort(
            key=lambda one: (
                one.state is not InstanceState.IN_SERVICE,
                one.instance_id not in busy,
                one.instance_id,
            )
        )
        keep = wanted[key].instance_count if key in wanted else 0
        surplus.update(one.instance_id for one in group[keep:])
    return surplus


def _let_go_seconds(endpoint: EndpointRecord | None) -> float:
    stays = endpoint is not None and endpoint.status is not EndpointStatus.DELETING
    return LET_GO_SECONDS if stays else DELETED_LET_GO_SECONDS


def _retired(instance: InstanceRecord, stop_at: float, now: float) -> InstanceRecord:
    """Set when to stop; now, if no gateway can be sending to it."""
    serves = instance.state is InstanceState.IN_SERVICE
    return msgspec.structs.replace(instance, stop_at=stop_at if serves else now)


def _missing(
    endpoint_name: str,
    wanted: Mapping[VariantKey, VariantPlan],
    instances: tuple[InstanceRecord, ...],
    new_id: Callable[[], str],
) -> tuple[InstanceRecord, ...]:
    have = Counter(variant_key(one) for one in instances if one.stop_at is None)
    return tuple(
        _new_instance(endpoint_name, deployment_id, variant, new_id())
        for (deployment_id, name), variant in wanted.items()
        for _ in range(variant.instance_count - have[deployment_id, name])
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
        one.instance_id
        for one in instances
        if one.stop_at is not None and one.instance_id not in reports
    )


def _changed(
    before: tuple[InstanceRecord, ...], after: tuple[InstanceRecord, ...]
) -> tuple[InstanceRecord, ...]:
    stored = {one.instance_id: one for one in before}
    return tuple(
        one for one in after if one.instance_id in stored and one != stored[one.instance_id]
    )


def _retries(
    instances: tuple[InstanceRecord, ...], endpoint: EndpointRecord | None, facts: Facts
) -> dict[str, Retry]:
    current = endpoint.current.deployment_id if endpoint and endpoint.current else None
    retries: dict[str, Retry] = {}
    for one in instances:
        known = facts.retries.get(one.instance_id)
        if one.stop_at is not None or one.deployment_id != current:
            continue
        if one.state is InstanceState.FAILED and _is_due(known, facts.now):
            attempts = known.attempts + 1 if known else 0
            known = Retry(attempts=attempts, at=facts.now + backoff_seconds(attempts))
        if known is not None and one.state is not InstanceState.IN_SERVICE:
            retries[one.instance_id] = known
    return retries


def _is_due(known: Retry | None, now: float) -> bool:
    # Like `_is_past`: the clock may be set back.
    return known is None or known.at <= now or known.at > now + LONGEST_BACKOFF_SECONDS


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
        one.spec
        for one in instances
        if one.stop_at is None
        and (one.instance_id not in facts.reports or one.instance_id in again)
    )


def _to_stop(
    instances: tuple[InstanceRecord, ...], facts: Facts, endpoint: EndpointRecord | None
) -> tuple[str, ...]:
    if facts.reports is None:
        return ()
    stays = endpoint is not None and endpoint.status is not EndpointStatus.DELETING
    return tuple(
        one.instance_id
        for one in instances
        if one.stop_at is not None
        and _is_past(one.stop_at, facts.now)
        and one.state is not InstanceState.STOPPING
        # Nobody waits for the requests of a deleted endpoint.
        and not (stays and one.instance_id in facts.busy)
    )


def _is_past(stop_at: float, now: float) -> bool:
    # A time further off means that the clock was set back.
    return stop_at <= now or stop_at > now + LET_GO_SECONDS


def _wake_at(
    instances: tuple[InstanceRecord, ...], retries: Mapping[str, Retry], now: float
) -> float | None:
    failed = {one.instance_id for one in instances if one.state is InstanceState.FAILED}
    times = [one.stop_at for one in instances if one.stop_at is not None and one.stop_at > now]
    times += [retry.at for instance_id, retry in retries.items() if instance_id in failed]
    return min(times, default=None)
