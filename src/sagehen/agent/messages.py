"""What is said over the agent's socket, besides the specs and reports of `domain.containers`."""

import msgspec

from sagehen.domain.containers import InstanceReport

__all__ = ["Failure", "InstanceList", "LoadRequest", "LoadedModel", "Sample", "TouchRequest"]


class InstanceList(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    """Grows with every change of any report; starts anew, higher, with each agent."""
    instances: tuple[InstanceReport, ...]


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    target_model: str
    wait_seconds: float = 60


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the container holds, to be called at `/models/{model_name}/invoke`."""

    model_name: str
    hit: bool
    """It was loaded when it was asked for."""
    wait_microseconds: int


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True):
    model_names: tuple[str, ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One number about one instance; those that end in Sum and Count only grow."""

    name: str
    endpoint: str
    variant: str
    instance: str
    value: float
    limit: str | None = None
    """Which limit it is about, if any."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
