"""Asynchronous endpoints."""

from pydantic import Field

from sagehen.settings.section import Section

__all__ = ["AsynchronousSettings"]


class AsynchronousSettings(Section):
    """Asynchronous endpoints."""

    async_concurrency: int = Field(
        4,
        ge=1,
        le=1000,
        description="Asynchronous requests that an instance works on at once where the endpoint "
        "config has no MaxConcurrentInvocationsPerInstance; fewer where its container takes fewer.",
    )
    max_async_in_flight: int = Field(
        512,
        gt=0,
        description="Asynchronous requests of all endpoints that are worked on at once; more wait "
        "in the queue.",
    )
    max_async_input_bytes: int = Field(
        2**30, gt=0, description="Largest input of an asynchronous request."
    )
    max_async_response_bytes: int = Field(
        2**30, gt=0, description="Largest answer to an asynchronous request."
    )
    max_async_redeliveries: int = Field(
        2,
        ge=0,
        description="How often an asynchronous request is sent again after its instance was lost.",
    )
    async_store_patience_seconds: float = Field(
        300,
        gt=0,
        description="How long the input of an asynchronous request, or the place of its output, "
        "may be unreachable before it fails.",
    )
    async_history_seconds: float = Field(
        7 * 24 * 3600,
        gt=0,
        description="How long asynchronous requests can be asked after, and redriven, once they "
        "have ended.",
    )
    topics_required: bool = Field(
        True,
        description="Fail an asynchronous endpoint whose topic does not exist; else it is a line "
        "in the log.",
    )
