"""Variants as resources of Application Auto Scaling.

Counts are changed by the code of UpdateEndpointWeightsAndCapacities, in the caller's transaction.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.context import RequestContext
from sagehen.services.autoscaling.dimensions import INSTANCES, PROVISIONED_CONCURRENCY
from sagehen.services.autoscaling.resources import Capacity
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting import instance_store as instances
from sagehen.services.sagemaker.hosting.endpoints import change_variants
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)
from sagehen.state.database import notify

__all__ = ["ENDPOINTS_SCALED", "VariantResources"]

ENDPOINTS_SCALED = "endpoints-scaled"
"""database notification channel: wakes the reconciler"""

_BURSTABLE = ("ml.t2.", "ml.t3.")


class _Variant(NamedTuple):
    endpoint: EndpointRecord
    shown: VariantPlan
    """as it serves, or will for the first time"""
    desired: VariantPlan
    """as it is to be"""

    @property
    def deployment(self) -> Deployment:
        """The deployment that serves, or the first one while it is being made."""
        deployment = self.endpoint.current or self.endpoint.target
        assert deployment is not None
        return deployment


class VariantResources:
    """The variants of endpoints; `Resources` of Application Auto Scaling."""

    def __init__(self, make_call: Callable[[], RequestContext]) -> None:
        """`make_call` makes the context of a call of UpdateEndpointWeightsAndCapacities."""
        self._make_call = make_call

    def capacity(self, connection: Connection, resource_id: str, dimension: str) -> Capacity | None:
        endpoint_name, variant_name = _names(resource_id)
        variant = _find(endpoints.get(connection, endpoint_name), endpoint_name, variant_name)
        if variant is None:
            return None
        running = instances.count_serving(
            connection, endpoint_name, variant.deployment.deployment_id, variant_name
        )
        return _capacity(variant, dimension, running)

    def capacities(
        self, connection: Connection, keys: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Capacity]:
        found: dict[tuple[str, str], Capacity] = {}
        wanted = list(keys)
        if not wanted:
            return found
        by_name = {endpoint.name: endpoint for endpoint in endpoints.all(connection)}
        running = Counter(
            (instance.endpoint_name, instance.deployment_id, instance.variant_name)
            for instance in instances.all(connection)
            if instance.state is InstanceState.IN_SERVICE and instance.stop_at is None
        )
        for resource_id, dimension in wanted:
            endpoint_name, variant_name = _names(resource_id)
            variant = _find(by_name.get(endpoint_name), endpoint_name, variant_name)
            if variant is not None:
                serving = (endpoint_name, variant.deployment.deployment_id, variant_name)
                capacity = _capacity(variant, dimension, running[serving])
                found[resource_id, dimension] = capacity
        return found

    def version(self, connection: Connection) -> object:
        columns = endpoints.ENDPOINTS.table.c
        statement = select(
            func.count(), func.max(columns.modified_at), func.sum(columns.modified_at)
        )
        return tuple(connection.execute(statement).one())

    def set_desired(
        self, connection: Connection, resource_id: str, dimension: str, count: int, now: float
    ) -> None:
        endpoint_name, variant_name = _names(resource_id)
        change: dict[str, Any] = {"VariantName": variant_name}
        if dimension == PROVISIONED_CONCURRENCY:
            change["ServerlessUpdateConfig"] = {"ProvisionedConcurrency": count}
        else:
            change["DesiredInstanceCount"] = count
        call = self._make_call()
        record = change_variants(call, connection, endpoint_name, {variant_name: change})
        if record.status is not EndpointStatus.UPDATING:
            raise refused(record.failure_reason or "The endpoint cannot be updated.")
        notify(connection, ENDPOINTS_SCALED, record.name)


def _names(resource_id: str) -> tuple[str, str]:
    _, endpoint_name, _, variant_name = resource_id.split("/")
    return endpoint_name, variant_name


def _find(
    endpoint: EndpointRecord | None, endpoint_name: str, variant_name: str
) -> _Variant | None:
    """Returns None for a name in other letters: metrics would not have it."""
    if endpoint is None:
        return None
    if endpoint.status is EndpointStatus.DELETING or endpoint.name != endpoint_name:
        return None
    current, target = endpoint.current, endpoint.target
    shown = current or target
    assert shown is not None
    same = target if target and target.deployment_id == shown.deployment_id else shown
    by_name = {variant.name: variant for variant in shown.all_variants}
    variant = by_name.get(variant_name)
    if variant is None:
        return None
    desired = next(one for one in same.all_variants if one.name == variant_name)
    return _Variant(endpoint, variant, desired)


def _capacity(variant: _Variant, dimension: str, running: int) -> Capacity:
    endpoint = variant.endpoint
    is_settled = endpoint.status is EndpointStatus.IN_SERVICE
    if dimension == PROVISIONED_CONCURRENCY:
        desired, current = map(_provisioned, (variant.desired, variant.shown))
    else:
        desired, current = variant.desired.instance_count, running
    return Capacity(
        desired=desired,
        current=current,
        is_settled=is_settled,
        not_scalable=None if is_settled else f"Endpoint {endpoint.name} is {endpoint.status}.",
        minimum_allowed=_least(variant, dimension),
        unregistrable=_unregistrable(variant.shown, dimension),
        failure=endpoint.failure_reason,
        deployment=variant.deployment.deployment_id,
    )


def _provisioned(variant: VariantPlan) -> int:
    return (variant.serverless and variant.serverless.provisioned_concurrency) or 0


def _least(variant: _Variant, dimension: str) -> int:
    """Returns 0 where calls can wait until an instance has started."""
    waits = variant.deployment.asynchronous is not None or variant.shown.scales_from_zero
    return 0 if waits and dimension == INSTANCES else 1


def _unregistrable(variant: VariantPlan, dimension: str) -> str | None:
    if dimension == PROVISIONED_CONCURRENCY:
        if _provisioned(variant):
            return None
        return (
            f"Variant {variant.name} has no provisioned concurrency to scale. Give it one in the "
            "ServerlessConfig of its endpoint configuration."
            if variant.serverless is not None
            else f"Variant {variant.name} has no provisioned concurrency: it is not serverless. "
            f"Its scalable dimension is {INSTANCES}."
        )
    if variant.serverless is not None:
        return (
            f"Variant {variant.name} is serverless, so it has no instance count. Its scalable "
            f"dimension is {PROVISIONED_CONCURRENCY}."
        )
    if variant.runs_no_model:
        return (
            f"Variant {variant.name} runs no model (SAGEHEN_OFFLINE_RESULTS_ONLY), so it has no "
            "instances to scale."
        )
    if variant.instance_type.startswith(_BURSTABLE):
        return (
            f"You cannot register a variant with {variant.instance_type} instance type as a "
            "scalable target. This is because the burstable performance of these instances can "
            "lead to unpredictable behavior with Auto Scaling."
        )
    return None
