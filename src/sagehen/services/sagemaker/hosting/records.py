"""The things kept in state. A change makes a new record."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.frame.container_specs import ContainerSpec, InstanceSpec, InstanceState
from sagehen.frame.named_records import NamedRecord
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
    "VariantPlan",
]


class EndpointStatus(StrEnum):
    """SageMaker's EndpointStatus, the ones Sagehen reaches."""

    CREATING = "Creating"
    """Its first instances start; invoking it fails, and so do update and delete."""
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    """What served before serves on while new instances start."""
    FAILED = "Failed"
    """It could not be created; it can only be deleted."""
    DELETING = "Deleting"
    """Its instances stop; then the record is gone."""


SERVING = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)
"""In which an endpoint takes requests."""


class DefinedRecord(NamedRecord, frozen=True, kw_only=True):
    definition: dict[str, Any]
    """The parameters that it was created with, as they came, without Tags."""


class ModelRecord(DefinedRecord, frozen=True, kw_only=True):
    """As CreateModel was given it."""


class EndpointConfigRecord(DefinedRecord, frozen=True, kw_only=True):
    """As CreateEndpointConfig was given it."""


class VariantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one production variant should be, or one shadow variant."""

    name: str
    instance_type: str
    instance_count: int
    weight: float
    containers: tuple[ContainerSpec, ...]
    mode: ExecutionMode = ExecutionMode.SERIAL
    """What several containers do."""
    strategy: RoutingStrategy = RoutingStrategy.RANDOM
    startup_timeout_seconds: float = 480
    download_timeout_seconds: float = 3600

    @property
    def multi_model(self) -> bool:
        return any(container.multi_model for container in self.containers)


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint config with its models, copied when it was deployed.

    A copy, because SageMaker lets both be deleted while an endpoint uses them.
    """

    deployment_id: str
    """New with each CreateEndpoint and UpdateEndpoint; kept when only weights or counts change, so
    that instances stay."""
    config_name: str
    variants: tuple[VariantPlan, ...]
    """Those that answer: the production variants."""
    shadow: VariantPlan | None = None
    """The one that gets copies of requests, where there is one."""
    asynchronous: AsyncPlan | None = None
    """What the config says in AsyncInferenceConfig, where it does."""
    async_inference_config: dict[str, Any] | None = None
    """The same as it was given, to be described."""
    deployed_at: float = 0
    """When the config was copied: nothing in it is resolved again later."""

    @property
    def all_variants(self) -> tuple[VariantPlan, ...]:
        """All that have instances; no two have the same name."""
        return self.variants if self.shadow is None else (*self.variants, self.shadow)


class EndpointRecord(NamedRecord, frozen=True, kw_only=True):
    modified_at: float
    status: EndpointStatus
    failure_reason: str | None = None
    current: Deployment | None = None
    """What serves; None until the first deployment is in service."""
    target: Deployment | None = None
    """What is being put in its place; None when nothing is."""
    last_deployment_config: dict[str, Any] | None = None


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that control wants, and what it last heard of it."""

    instance_id: str
    endpoint_name: str
    deployment_id: str
    variant_name: str
    spec: InstanceSpec
    state: InstanceState = InstanceState.STARTING
    address: str | None = None
    failure_reason: str | None = None
    stop_at: float | None = None
    """Set when it has left the routes: from then on it is stopped, once gateways have let go."""
