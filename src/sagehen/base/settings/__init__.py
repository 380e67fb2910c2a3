"""Every setting: its name, type, bounds, default and meaning. Units are in the name.

`sagehen.base.config` loads the values.
"""

from pydantic import Field

from sagehen.base.settings.cluster import ClusterSettings
from sagehen.base.settings.docker import DockerSettings
from sagehen.base.settings.hosting import (
    ArtifactSettings,
    AsynchronousSettings,
    ConnectionSettings,
    InstanceSettings,
    InvocationSettings,
    ScalingSettings,
    TrainingSettings,
    TransformSettings,
)
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.base.settings.messaging import DeliverySettings, MailSettings, MessagingSettings
from sagehen.base.settings.on_demand import OnDemandSettings
from sagehen.base.settings.server import MetricSettings, ServerSettings, StorageSettings

__all__ = ["Settings"]


class Settings(
    StorageSettings,
    ServerSettings,
    InstanceSettings,
    DockerSettings,
    ArtifactSettings,
    InvocationSettings,
    ConnectionSettings,
    AsynchronousSettings,
    ScalingSettings,
    OnDemandSettings,
    MessagingSettings,
    DeliverySettings,
    MailSettings,
    MetricSettings,
    TrainingSettings,
    TransformSettings,
    ClusterSettings,
):
    """One frozen object, built once per process and handed down."""

    inference_service: InferenceServiceSettings = Field(
        default_factory=lambda: InferenceServiceSettings.model_validate({}),
        description="The [Async-Inference-Service](../howto/long-jobs.md). Lists may be one text "
        "with commas.",
    )
