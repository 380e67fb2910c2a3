"""Copies configs and models for deployment, and checks the capacity for their instances."""

import os
import uuid
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import psutil
from sqlalchemy import Connection

from sagehen.base.settings import Settings
from sagehen.frame.context import RequestContext
from sagehen.frame.gpu_allocation import Demand, FreeShares, allocate
from sagehen.frame.gpus import WHOLE, instance_fraction
from sagehen.frame.instance_types import require_instance_type
from sagehen.services.sagemaker.async_inference.config import check_async_models, plan_async
from sagehen.services.sagemaker.errors import quota_exceeded
from sagehen.services.sagemaker.hosting.containers import containers_of
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.hosting.definitions import ENDPOINT_CONFIGS, MODELS
from sagehen.services.sagemaker.hosting.endpoint_values import EndpointValues
from sagehen.services.sagemaker.hosting.model_data import model_data_version
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    VariantPlan,
)
from sagehen.services.sagemaker.hosting.serverless import check_serverless_models
from sagehen.services.sagemaker.hosting.variants import (
    check_offline_models,
    check_shadow_models,
    plan_variant,
    variants_of,
)
from sagehen.state.database import Database

__all__ = [
    "InstanceCounts",
    "Machine",
    "RunningCounts",
    "check_capacity",
    "copy_config",
    "count_instances",
    "look_up_versions",
    "retain",
    "this_machine",
]


def look_up_versions(call: RequestContext, config_name: str) -> Mapping[str, str]:
    """Returns the current ETags of a config's model data, by address.

    Instances that restart later get the same data, even if the object was overwritten. Call it
    before the transaction that deploys: the object store may be far away.
    """
    with call.database.read() as connection:
        config = endpoint_configs.get(connection, config_name)
        variants = variants_of(config.definition) if config else []
        used_models = [models.get(connection, variant["ModelName"]) for variant in variants]
    containers = [
        container for model in used_models if model for container in containers_of(model.definition)
    ]
    return dict(filter(None, (model_data_version(call, container) for container in containers)))


def copy_config(
    call: RequestContext,
    connection: Connection,
    config_name: str,
    endpoint_name: str,
    versions: Mapping[str, str],
) -> Deployment:
    """Returns a new deployment of a config for an endpoint.

    Raises:
        AwsError: the config or a model is gone, or a model is now of another kind.
    """
    config = ENDPOINT_CONFIGS.get(call, connection, config_name)
    isolated = config.definition.get("EnableNetworkIsolation", False)
    plans, used = [], []
    for variant in variants_of(config.definition):
        model = MODELS.get(call, connection, variant["ModelName"])
        used.append(model)
        plans.append(plan_variant(variant, model, versions, isolated))
    check_shadow_models(config.definition, used)
    check_async_models(config.definition, used)
    check_offline_models(config.definition, used)
    check_serverless_models(config.definition, used)
    count = len(config.definition["ProductionVariants"])
    return Deployment(
        deployment_id=uuid.uuid4().hex,
        config_name=config.name,
        variants=tuple(plans[:count]),
        shadow=next(iter(plans[count:]), None),
        asynchronous=plan_async(config.definition, call.settings, endpoint_name),
        async_inference_config=config.definition.get("AsyncInferenceConfig"),
        deployed_at=call.clock.now(),
    )


def retain(new: Deployment, old: Deployment, excluded: list[str]) -> Deployment:
    """Returns `new` with the instance counts and weights of `old`'s variants of the same names.

    Shadows inherit only from shadows: their weights mean something else. `excluded` may hold
    `DesiredInstanceCount` and `DesiredWeight`.
    """
    old_variants = {variant.name: variant for variant in old.variants}

    def inherit(variant: VariantPlan, before: VariantPlan) -> VariantPlan:
        keeps_count = "DesiredInstanceCount" in excluded
        # A variant without a model has no instances, whatever the other one has; a serverless one
        # has what its own ServerlessConfig says.
        changes_kind = (
            variant.runs_no_model is not before.runs_no_model
            or (variant.serverless or before.serverless) is not None
        )
        counts = variant if keeps_count or changes_kind else before
        weights = variant if "DesiredWeight" in excluded else before
        return msgspec.structs.replace(
            variant, instance_count=counts.instance_count, weight=weights.weight
        )

    shadow = new.shadow
    if shadow is not None and old.shadow is not None and shadow.name == old.shadow.name:
        shadow = inherit(shadow, old.shadow)
    variants = tuple(
        inherit(variant, old_variants.get(variant.name, variant)) for variant in new.variants
    )
    return msgspec.structs.replace(new, variants=variants, shadow=shadow)


_GPUS = Path("/proc/driver/nvidia/gpus")
_NOT_RUNNING = (EndpointStatus.FAILED, EndpointStatus.DELETING)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's resources, which all instances share."""

    vcpus: int
    memory_bytes: int
    gpus: int


def this_machine(settings: Settings) -> Machine:
    """Returns the machine of control and of its instances, with the GPUs that they may have."""
    gpus = sum(1 for _ in _GPUS.iterdir()) if _GPUS.is_dir() else 0
    return Machine(
        vcpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        gpus=min(gpus, len(settings.gpu_devices)) if settings.gpu_devices else gpus,
    )


def check_capacity(
    before: Mapping[str, "InstanceCounts"],
    after: EndpointRecord,
    settings: Settings,
    machine: Machine,
) -> None:
    """Checks that there is room for `after`; the old instances of an update count too, as in
    SageMaker.

    Args:
        before: the instances of all endpoints, by name.

    Raises:
        AwsError: ResourceLimitExceeded.
    """
    used: InstanceCounts = Counter()
    for counts in before.values():
        used.update(counts)
    delta = count_instances(after)
    delta.subtract(before.get(after.name, {}))
    total, limit = used.total(), settings.max_endpoint_instances
    if delta.total() > max(0, limit - total):
        reason = "The limit is Sagehen's setting max_endpoint_instances."
        raise quota_exceeded(
            "Number of instances across active endpoints", limit, total, delta.total(), reason
        )
    if settings.strict_capacity:
        for kind, count in delta.items():
            free = _free_instances(kind, used, machine)
            if count > free:
                name = kind.instance_type
                of_type = sum(number for other, number in used.items() if other[0] == name)
                quota = f"{name} for endpoint usage"
                raise quota_exceeded(quota, of_type + free, of_type, count, _limit_reason(machine))
            used[kind] += count


class _Kind(NamedTuple):
    """Instances that need the same."""

    instance_type: str
    gpu_fraction: Fraction
    """of each of the type's GPUs"""


InstanceCounts = Counter[_Kind]


def count_instances(endpoint: EndpointRecord) -> InstanceCounts:
    """Counts the instances that an endpoint has or comes to."""
    total: InstanceCounts = Counter()
    if endpoint.status in _NOT_RUNNING:
        return total
    counts: dict[tuple[_Kind, str, str], int] = {}
    for deployment in filter(None, (endpoint.current, endpoint.target)):
        for variant in deployment.all_variants:
            key = (_kind(variant), deployment.deployment_id, variant.name)
            counts[key] = max(counts.get(key, 0), variant.instance_count)
    for (kind, _, _), count in counts.items():
        total[kind] += count
    return total


class RunningCounts:
    """The instances of all endpoints of a state. Safe from any thread."""

    _of_states: ClassVar[WeakKeyDictionary[Database, "RunningCounts"]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._values = EndpointValues(count_instances)

    @classmethod
    def of(cls, state: Database) -> "RunningCounts":
        return cls._of_states.setdefault(state, cls())

    def read(self, connection: Connection) -> dict[str, InstanceCounts]:
        """Returns the counts by endpoint, as this transaction sees them."""
        return self._values.read(connection)


def _kind(variant: VariantPlan) -> _Kind:
    environments = [container.environment for container in variant.containers]
    return _Kind(variant.instance_type, instance_fraction(environments))


def _free_instances(kind: _Kind, used: Counter[_Kind], machine: Machine) -> int:
    resources = require_instance_type(kind.instance_type)
    vcpus, memory = machine.vcpus, machine.memory_bytes
    for other, count in used.items():
        used_resources = require_instance_type(other.instance_type)
        vcpus -= count * used_resources.vcpus
        memory -= count * used_resources.memory_bytes
    fits = max(0, min(vcpus // resources.vcpus, memory // resources.memory_bytes))
    return min(fits, _instances_with_gpus(kind, used, machine, fits)) if resources.gpus else fits


def _instances_with_gpus(kind: _Kind, used: Counter[_Kind], machine: Machine, most: int) -> int:
    """Returns how many more instances, up to `most`, get GPUs if all are placed anew, the largest
    fractions first."""
    free: FreeShares = {str(number): WHOLE for number in range(machine.gpus)}
    for other in sorted(used, key=lambda other: other.gpu_fraction, reverse=True):
        for _ in range(used[other]):
            left = _place(free, other)
            if left is None:
                return 0
            free = left
    for number in range(most):
        left = _place(free, kind)
        if left is None:
            return number
        free = left
    return most


def _place(free: FreeShares, kind: _Kind) -> FreeShares | None:
    gpus = require_instance_type(kind.instance_type).gpus
    demand = Demand(gpus=gpus, fraction=kind.gpu_fraction)
    allocation = allocate(free, demand, gpus)
    if allocation is None:
        return None
    taken = allocation[0]
    return {gpu: share - kind.gpu_fraction * (gpu in taken) for gpu, share in free.items()}


def _limit_reason(machine: Machine) -> str:
    return (
        f"Sagehen's setting strict_capacity is on, and this machine has {machine.vcpus} vCPUs, "
        f"{machine.memory_bytes / 2**30:.1f} GiB of memory and {machine.gpus} GPUs."
    )
