"""Every setting, in one table: its name, type, bounds, default and meaning. Units are in the name.

Where the values come from is `sagehen.base.config`'s to say.
"""

from pydantic import Field

from sagehen.base.settings.hosting import (
    ArtifactSettings,
    AsynchronousSettings,
    ConnectionSettings,
    InstanceSettings,
    InvocationSettings,
    TrainingSettings,
)
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.base.settings.messaging import DeliverySettings, MailSettings, MessagingSettings
from sagehen.base.settings.server import MetricSettings, PlaceSettings, ServerSettings

__all__ = ["Settings"]


class Settings(
    PlaceSettings,
    ServerSettings,
    InstanceSettings,
    ArtifactSettings,
    InvocationSettings,
    ConnectionSettings,
    AsynchronousSettings,
    MessagingSettings,
    DeliverySettings,
    MailSettings,
    MetricSettings,
    TrainingSettings,
):
    """One frozen object, built once per process and handed down."""

    inference_service: InferenceServiceSettings = Field(
        default_factory=lambda: InferenceServiceSettings.model_validate({}),
        description="The [Async-Inference-Service](../howto/long-jobs.md). White lists and other "
        "lists of texts may be one text with commas.",
    )
