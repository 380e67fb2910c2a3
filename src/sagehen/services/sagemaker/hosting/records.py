"""Records of models, endpoint configs, endpoints and instances; all are immutable."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.frame.named_records import NamedRecord
from sagehen.frame.offline_results.definition import OfflineResults
from sagehen.frame.routes import AsyncPlan, ExecutionMode, RoutingStrategy

__all__ = [
    "SERVING",
    "DefinedRecord",
    "Deployment",
    "EndpointConfigRecord",
    "EndpointRecord",
    "EndpointStatus",
    "InstanceRecord",
    "ModelRecord",
    "ServerlessPlan",
    "VariantPlan",
]


class EndpointStatus(StrEnum):
    """SageMaker's EndpointStatus, as far as Sagehen uses it."""

    CREATING = "Creating"
    """Its first instances start; it cannot be invoked, updated or deleted."""
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    """The old deployment serves while new instances start."""
    FAILED = "Failed"
    """Creation failed; it can only be deleted."""
    DELETING = "Deleting"
    """Its instances stop before the record is deleted."""


SERVING = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)


class DefinedRecord(NamedRecord, frozen=True, kw_only=True):
    definition: dict[str, Any]
    """The Create operation's parameters, without Tags."""


class ModelRecord(DefinedRecord, frozen=True, kw_only=True):
    """A model."""


class EndpointConfigRecord(DefinedRecord, frozen=True, kw_only=True):
    """An endpoint config."""


class ServerlessPlan(msgspec.Struct, frozen=True, kw_only=True):
    """ServerlessConfig of a variant."""

    memory_mb: int
    max_concurrency: int
    """the most requests at once; more are throttled"""
    provisioned_concurrency: int | None = None
    """requests at once for which instances are kept running"""


class VariantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The model, instances and limits of a production or shadow variant."""

    name: str
    instance_type: str
    instance_count: int
    weight: float
    containers: tuple[ContainerSpec, ...]
    mode: ExecutionMode = ExecutionMode.SERIAL
    strategy: RoutingStrategy = RoutingStrategy.RANDOM
    startup_timeout_seconds: float = 480
    download_timeout_seconds: float = 3600
    offline_results: OfflineResults | None = None
    """Answers while no instance can; with `only`, the variant has none."""
    serverless: ServerlessPlan | None = None
    """With it, `instance_count` is what provisioned concurrency needs at least."""
    scales_from_zero: bool = False
    """The first call to the variant starts an instance where `instance_count` is 0."""

    @property
    def starts_on_demand(self) -> bool:
        """Whether calls start instances beyond `instance_count`."""
        return self.serverless is not None or (self.scales_from_zero and self.instance_count == 0)

    @property
    def runs_no_model(self) -> bool:
        return self.offline_results is not None and self.offline_results.only

    @property
    def multi_model(self) -> bool:
        return any(container.multi_model for container in self.containers)


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of an endpoint config and its models: both may be deleted while an endpoint uses
    them."""

    deployment_id: str
    """Kept when only weights or counts change, so that instances stay."""
    config_name: str
    variants: tuple[VariantPlan, ...]
    """The production variants."""
    shadow: VariantPlan | None = None
    """Gets copies of requests."""
    asynchronous: AsyncPlan | None = None
    async_inference_config: dict[str, Any] | None = None
    """As given, for DescribeEndpoint."""
    deployed_at: float = 0

    @property
    def all_variants(self) -> tuple[VariantPlan, ...]:
        """All variants; no two have the same name."""
        return self.variants if self.shadow is None else (*self.variants, self.shadow)


class EndpointRecord(NamedRecord, frozen=True, kw_only=True):
    modified_at: float
    """Every operation that changes the row changes it, too: the reconciler reads only such rows."""
    status: EndpointStatus
    failure_reason: str | None = None
    current: Deployment | None = None
    """the deployment in service"""
    target: Deployment | None = None
    """the deployment under way"""
    last_deployment_config: dict[str, Any] | None = None
    running: dict[str, int] | None = None
    """by variant: instances that calls have started and that run until they are idle"""


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A desired instance and its last reported state."""

    instance_id: str
    endpoint_name: str
    deployment_id: str
    variant_name: str
    spec: InstanceSpec
    state: InstanceState = InstanceState.STARTING
    address: str | None = None
    failure_reason: str | None = None
    stop_at: float | None = None
    """When to stop it, after it left the routes."""
