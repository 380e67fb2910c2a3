"""An endpoint's next status, from the states of its instances.

Creating ─┬─ all of target in service → InService        Deleting, Failed, InService
          └─ one failed → Failed                         stay: only operations change them
Updating ─┬─ all of target in service, or none is missing → InService on target
          └─ one failed → InService on current, with the reason

A target's stores of offline results count like its instances.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    VariantPlan,
)
from sagehen.services.sagemaker.offline_results.stores import (
    NO_STORES,
    StoreStates,
    are_ready,
    failure_of,
)

__all__ = ["VariantKey", "advance", "desired_variants", "variant_key"]

VariantKey = tuple[str, str]
"""(deployment id, variant name)"""

_UNKNOWN_REASON = (
    "Request to service failed. If failure persists after retry, contact customer support."
)


def advance(
    endpoint: EndpointRecord,
    instances: Sequence[InstanceRecord],
    retried: Collection[str],
    now: float,
    stores: StoreStates = NO_STORES,
) -> EndpointRecord:
    """Returns the endpoint with its new status.

    Args:
        instances: without those that are to stop.
        retried: ids of instances that failed in service and are retried: an update neither waits
            for them nor fails by them.
        stores: of offline results, without which no variant that has some comes into service.
    """
    target = endpoint.target
    if target is None or endpoint.status not in (EndpointStatus.CREATING, EndpointStatus.UPDATING):
        return endpoint
    if endpoint.status is EndpointStatus.UPDATING and not _grows(endpoint.current, target):
        return _in_service(endpoint, target, now)
    of_target = [
        instance for instance in instances if instance.deployment_id == target.deployment_id
    ]
    failed = [
        instance
        for instance in of_target
        if instance.state is InstanceState.FAILED and instance.instance_id not in retried
    ]
    if failed:
        return _fail(endpoint, failed[0].failure_reason or _UNKNOWN_REASON, now)
    if reason := failure_of(target, stores):
        return _fail(endpoint, reason, now)
    if _complete(endpoint, target, of_target, retried) and are_ready(target, stores):
        return _in_service(endpoint, target, now)
    return endpoint


def desired_variants(endpoint: EndpointRecord | None) -> dict[VariantKey, VariantPlan]:
    """Returns what should run; a deployment that is both current and target has the greater
    counts."""
    desired: dict[VariantKey, VariantPlan] = {}
    if endpoint is None or endpoint.status in (EndpointStatus.DELETING, EndpointStatus.FAILED):
        return desired
    for deployment in (endpoint.current, endpoint.target):
        if deployment is None:
            continue
        for variant in deployment.all_variants:
            key = (deployment.deployment_id, variant.name)
            other = desired.get(key, variant).instance_count
            count = max(other, _required(variant, deployment, endpoint.current))
            if variant.starts_on_demand:
                count = max(count, (endpoint.running or {}).get(variant.name, 0))
            desired[key] = msgspec.structs.replace(variant, instance_count=count)
    return desired


def _required(variant: VariantPlan, deployment: Deployment, current: Deployment | None) -> int:
    """Returns the instances without which a deployment does not come into service: one of a new
    serverless variant proves that its model starts."""
    is_new = current is None or current.deployment_id != deployment.deployment_id
    proof = int(variant.serverless is not None and is_new)
    return max(variant.instance_count, proof)


def variant_key(instance: InstanceRecord) -> VariantKey:
    return instance.deployment_id, instance.variant_name


def _grows(current: Deployment | None, target: Deployment) -> bool:
    if current is None or current.deployment_id != target.deployment_id:
        return True
    old_counts = {variant.name: variant.instance_count for variant in current.all_variants}
    return any(
        variant.instance_count > old_counts.get(variant.name, 0) for variant in target.all_variants
    )


def _complete(
    endpoint: EndpointRecord,
    target: Deployment,
    instances: Sequence[InstanceRecord],
    retried: Collection[str],
) -> bool:
    settled = Counter(
        instance.variant_name
        for instance in instances
        if instance.state is InstanceState.IN_SERVICE or instance.instance_id in retried
    )
    return all(
        settled[variant.name] >= _required(variant, target, endpoint.current)
        for variant in target.all_variants
    )


def _in_service(endpoint: EndpointRecord, target: Deployment, now: float) -> EndpointRecord:
    return msgspec.structs.replace(
        endpoint,
        status=EndpointStatus.IN_SERVICE,
        failure_reason=None,
        current=target,
        target=None,
        modified_at=now,
    )


def _fail(endpoint: EndpointRecord, reason: str, now: float) -> EndpointRecord:
    if endpoint.current is None:
        # `target` stays: DescribeEndpoint shows the failed config.
        return msgspec.structs.replace(
            endpoint, status=EndpointStatus.FAILED, failure_reason=reason, modified_at=now
        )
    return msgspec.structs.replace(
        endpoint,
        status=EndpointStatus.IN_SERVICE,
        failure_reason=reason,
        target=None,
        modified_at=now,
    )
