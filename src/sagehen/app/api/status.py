"""Builds the content of `sagehen status`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.container_specs import InstanceState
from sagehen.frame.instance_types import find_instance_type
from sagehen.services.autoscaling.status import ScalingStatus
from sagehen.services.inference_service import (
    job_store as inference_jobs,
)
from sagehen.services.inference_service import (
    service_store as inference_services,
)
from sagehen.services.inference_service.service import undeclared_reason
from sagehen.services.monitoring.prometheus.exposition import Measured
from sagehen.services.monitoring.prometheus.gateway_totals import (
    LastError,
    VariantCounts,
    VariantKey,
)
from sagehen.services.sagemaker.async_inference.records import EndpointQueue
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    InstanceRecord,
    VariantPlan,
)
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.transform import store as transform_jobs

__all__ = [
    "JobCounts",
    "ServiceStatus",
    "Snapshot",
    "count_instances",
    "cpu_variants",
    "describe_status",
    "read_job_counts",
    "read_transform_counts",
]


@dataclass(frozen=True)
class JobCounts:
    """Unfinished jobs."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class ServiceStatus:
    """A service's unfinished jobs."""

    stage: str
    running: int
    waiting: int
    problem: str | None
    """why it is paused, and the remedy"""


def read_transform_counts(connection: Connection) -> JobCounts:
    stages: Counter[JobStage] = Counter()
    for (_, stage), count in transform_jobs.counts(connection).items():
        stages[stage] += count
    return JobCounts(stages[JobStage.ACTIVE], stages[JobStage.WAITING])


def read_job_counts(
    connection: Connection, settings: InferenceServiceSettings
) -> tuple[JobCounts, list[ServiceStatus]]:
    stages: Counter[JobStage] = Counter()
    for (_, stage), count in training_jobs.counts(connection).items():
        stages[stage] += count
    services = [
        ServiceStatus(
            stage=service.stage,
            running=sum(inference_jobs.active_by_type(connection, service.stage).values()),
            waiting=inference_jobs.queued(connection, service.stage),
            problem=undeclared_reason(service, settings),
        )
        for service in inference_services.all_services(connection)
    ]
    return JobCounts(stages[JobStage.ACTIVE], stages[JobStage.WAITING]), services


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The data of the status."""

    endpoints: Sequence[EndpointRecord]
    instances: Sequence[InstanceRecord]
    totals: Mapping[VariantKey, VariantCounts]
    measured: Measured
    queues: Mapping[str, EndpointQueue] = field(default_factory=dict)
    """absent until the first request"""
    jobs: JobCounts = field(default_factory=JobCounts)
    transforms: JobCounts = field(default_factory=JobCounts)
    services: Sequence[ServiceStatus] = ()
    last_errors: Mapping[VariantKey, LastError] = field(default_factory=dict)
    scaling: Mapping[VariantKey, Sequence[ScalingStatus]] = field(default_factory=dict)
    describe_image: Callable[[str], str | None] = lambda image: None
    """says which libraries stand in for an image's"""


def describe_status(snapshot: Snapshot) -> dict[str, Any]:
    """Returns `{"endpoints": [{"name", "status", "variants": […], …}, …], "training_jobs":
    {"running", "waiting"}, "transform_jobs": …, "inference_services": […]}`."""
    groups: defaultdict[str, list[InstanceRecord]] = defaultdict(list)
    for record in snapshot.instances:
        groups[record.endpoint_name].append(record)
    return {
        "endpoints": [
            _endpoint(record, groups[record.name], snapshot) for record in snapshot.endpoints
        ],
        "training_jobs": asdict(snapshot.jobs),
        "transform_jobs": asdict(snapshot.transforms),
        "inference_services": [asdict(record) for record in snapshot.services],
    }


def cpu_variants(endpoints: Iterable[Mapping[str, Any]]) -> list[str]:
    """Says which of the described variants run on the CPU where no node has a GPU."""
    return [
        f"{endpoint['name']}, variant {variant['name']}: {variant['instance_type']} has a GPU, and "
        "none is here: it runs on the CPU."
        for endpoint in endpoints
        for variant in endpoint["variants"]
        if (known := find_instance_type(variant["instance_type"])) and known.gpus
    ]


def _endpoint(
    endpoint: EndpointRecord, instances: Iterable[InstanceRecord], snapshot: Snapshot
) -> dict[str, Any]:
    shown = endpoint.current or endpoint.target
    pending = endpoint.target if endpoint.current else None
    desired = desired_counts(endpoint)
    groups: defaultdict[tuple[str, str], list[InstanceRecord]] = defaultdict(list)
    leaving = 0
    for record in instances:
        if record.stop_at is None:
            groups[record.deployment_id, record.variant_name].append(record)
        else:
            leaving += 1
    return {
        "name": endpoint.name,
        "status": endpoint.status.value,
        "failure_reason": endpoint.failure_reason,
        "config_name": shown.config_name if shown else None,
        "pending_config_name": pending.config_name if pending else None,
        "created_at": endpoint.created_at,
        "modified_at": endpoint.modified_at,
        "queue": _queue(shown, snapshot.queues.get(endpoint.name)),
        "leaving": leaving,
        "variants": [
            _variant(record, groups[shown.deployment_id, record.name], endpoint, snapshot)
            | {"shadow": record is shown.shadow, "desired": desired[record.name]}
            for record in shown.all_variants
        ]
        if shown
        else [],
    }


def desired_counts(endpoint: EndpointRecord) -> dict[str, int]:
    """Returns the desired counts of the variants that are shown, by name."""
    shown, changing = endpoint.current or endpoint.target, endpoint.target
    if shown is None:
        return {}
    if changing is None or changing.deployment_id != shown.deployment_id:
        changing = shown
    running = endpoint.running or {}
    return {
        variant.name: max(variant.instance_count, running.get(variant.name, 0))
        for variant in changing.all_variants
    }


def count_instances(
    endpoints: Iterable[EndpointRecord], instances: Iterable[InstanceRecord]
) -> Measured:
    """Returns the desired and the running instances of every variant, for Prometheus."""
    records = list(endpoints)
    deployments = {
        endpoint.name: shown.deployment_id
        for endpoint in records
        if (shown := endpoint.current or endpoint.target) is not None
    }
    desired: dict[tuple[str, ...], float] = {
        (endpoint.name, name): count
        for endpoint in records
        for name, count in desired_counts(endpoint).items()
    }
    running = dict.fromkeys(desired, 0.0)
    for instance in instances:
        key = (instance.endpoint_name, instance.variant_name)
        serves = instance.state is InstanceState.IN_SERVICE and instance.stop_at is None
        if serves and instance.deployment_id == deployments.get(instance.endpoint_name):
            running[key] = running.get(key, 0.0) + 1
    return {"DesiredInstances": desired, "RunningInstances": running}


def _queue(shown: Deployment | None, queue: EndpointQueue | None) -> dict[str, Any] | None:
    if shown is None or shown.asynchronous is None:
        return None
    queue = queue or EndpointQueue(endpoint_name="")
    return {"mode": queue.mode.value, "queued": queue.queued, "in_process": queue.leased}


def _variant(
    variant: VariantPlan,
    instances: Sequence[InstanceRecord],
    endpoint: EndpointRecord,
    snapshot: Snapshot,
) -> dict[str, Any]:
    key = (endpoint.name, variant.name)
    counts = snapshot.totals.get(key, VariantCounts())
    error = snapshot.last_errors.get(key)
    if error is not None and error.at < endpoint.created_at:
        error = None  # of an endpoint that had the name before
    latency = counts.model_latency
    described = [_instance(instance, snapshot.measured) for instance in instances]
    serving = [instance for instance in instances if instance.state is InstanceState.IN_SERVICE]
    return {
        "name": variant.name,
        "instance_type": variant.instance_type,
        "weight": variant.weight,
        "multi_model": variant.multi_model,
        "in_service": len(serving),
        "starts_on_demand": variant.starts_on_demand,
        "invocations": counts.invocations,
        "errors_4xx": counts.errors_4xx,
        "errors_5xx": counts.errors_5xx,
        "last_error": None if error is None else msgspec.structs.asdict(error),
        "mean_latency_milliseconds": _ratio(latency.sum / 1000, latency.count),
        "p50_latency_milliseconds": _milliseconds(latency.quantile(0.5)),
        "p99_latency_milliseconds": _milliseconds(latency.quantile(0.99)),
        "cache_hit_ratio": _ratio(counts.cache_hits, counts.cache_lookups),
        "libraries": _libraries(variant, snapshot),
        "memory_bytes": _sum(described, "memory_bytes"),
        "scaling": [asdict(status) for status in snapshot.scaling.get(key, ())],
        "loaded_models": _sum(described, "loaded_models"),
        "instances": described,
    }


def _libraries(variant: VariantPlan, snapshot: Snapshot) -> list[str]:
    texts = (snapshot.describe_image(container.image) for container in variant.containers)
    return [text for text in dict.fromkeys(texts) if text]


def _instance(instance: InstanceRecord, measured: Measured) -> dict[str, Any]:
    key = (instance.endpoint_name, instance.variant_name, instance.instance_id)
    models = measured.get("LoadedModelCount", {}).get(key)
    return {
        "id": instance.instance_id,
        "state": instance.state.value,
        "address": instance.address,
        "failure_reason": instance.failure_reason,
        "memory_bytes": measured.get("InstanceMemoryBytes", {}).get(key),
        "loaded_models": None if models is None else int(models),
    }


def _ratio(sum_: float, count: int) -> float | None:
    return sum_ / count if count else None


def _milliseconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def _sum(instances: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Returns None if no value is known."""
    values = [instance[name] for instance in instances if instance[name] is not None]
    return sum(values) if values else None
