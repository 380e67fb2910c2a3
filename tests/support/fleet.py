"""Records and reports of endpoints and their instances, in few words."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from sagehen.frame.container_specs import (
    ContainerSpec,
    InstanceOwner,
    InstanceReport,
    InstanceSpec,
    InstanceState,
)
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    ServerlessPlan,
    VariantPlan,
)

NAME = "Houses"
CONTAINERS = (ContainerSpec(hostname="primary", image="python"),)


def deployment(
    identity: str, *counts: int, weight: float = 1.0, shadow: int | None = None
) -> Deployment:
    """Variants `a`, `b`, … with these instance counts, and a shadow variant `s` with its own."""

    def variant(name: str, count: int) -> VariantPlan:
        return VariantPlan(
            name=name,
            instance_type="ml.m5.large",
            instance_count=count,
            weight=weight,
            containers=CONTAINERS,
        )

    return Deployment(
        deployment_id=identity,
        config_name=f"config-{identity}",
        variants=tuple(variant(*one) for one in zip("abc", counts, strict=False)),
        shadow=None if shadow is None else variant("s", shadow),
    )


def serverless(most: int = 8, provisioned: int | None = None, identity: str = "d1") -> Deployment:
    """A serverless variant `a`."""
    made = deployment(identity, 0 if provisioned is None else 1)
    plan = ServerlessPlan(memory_mb=1024, max_concurrency=most, provisioned_concurrency=provisioned)
    variant = msgspec.structs.replace(
        made.variants[0], serverless=plan, instance_type="serverless-1024MB"
    )
    return msgspec.structs.replace(made, variants=(variant,))


def endpoint(status: EndpointStatus, **more: Any) -> EndpointRecord:
    given = {"name": NAME, "created_at": 1.0, "modified_at": 1.0, **more}
    arn = f"arn:aws:sagemaker:us-east-1:000000000000:endpoint/{given['name'].lower()}"
    return EndpointRecord(arn=arn, status=status, **given)


def instance(
    identity: str,
    deployment_id: str = "d1",
    state: InstanceState = InstanceState.STARTING,
    *,
    variant: str = "a",
    endpoint_name: str = NAME,
    stop_at: float | None = None,
) -> InstanceRecord:
    said = report(identity, state)
    return InstanceRecord(
        instance_id=identity,
        endpoint_name=endpoint_name,
        deployment_id=deployment_id,
        variant_name=variant,
        spec=InstanceSpec(
            instance_id=identity,
            endpoint_name=endpoint_name,
            variant_name=variant,
            instance_type="ml.m5.large",
            containers=CONTAINERS,
        ),
        state=state,
        address=said.address,
        failure_reason=said.failure_reason,
        stop_at=stop_at,
    )


def report(identity: str, state: InstanceState) -> InstanceReport:
    serves = state is InstanceState.IN_SERVICE
    return InstanceReport(
        instance_id=identity,
        state=state,
        address=f"unix:/run/{identity}.sock" if serves else None,
        failure_reason=f"{identity} broke." if state is InstanceState.FAILED else None,
    )


def counted_ids(prefix: str = "new") -> Callable[[], str]:
    """Ids `new-1`, `new-2`, …"""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers)}"


def instance_spec(
    variant: str = "AllTraffic", owner: InstanceOwner = InstanceOwner.ENDPOINT
) -> InstanceSpec:
    """An instance of the endpoint or transform job `e`."""
    return InstanceSpec(
        instance_id="i-1",
        endpoint_name="e",
        variant_name=variant,
        instance_type="ml.m5.large",
        containers=CONTAINERS,
        owner=owner,
    )
