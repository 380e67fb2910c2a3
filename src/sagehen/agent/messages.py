"""Messages on the agent's socket, besides those of `frame.container_specs`."""

import msgspec

from sagehen.frame.container_specs import InstanceReport

__all__ = [
    "ErrorMessage",
    "InstanceList",
    "InterruptRequest",
    "InterruptedJobs",
    "JobSample",
    "LoadRequest",
    "LoadedModel",
    "Sample",
    "TouchRequest",
]


class InstanceList(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    """grows with every change; a new agent starts higher"""
    instances: tuple[InstanceReport, ...]


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    target_model: str
    wait_seconds: float = 60
    short_of_memory: bool = False
    """the container lacks memory to answer: unload others"""


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to be called at `/models/{model_name}/invoke`.

    It is lent: it stays loaded until a TouchRequest gives it back, or unused for a while.
    """

    model_name: str
    hit: bool
    """it was loaded already"""
    wait_microseconds: int
    keep: bool = True
    """False if unloaded when given back: ask each time"""


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Models used, and loans that ended, since the last request."""

    model_names: tuple[str, ...] = ()
    given_back: dict[str, int] = {}
    """ended loans by model"""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one instance; names ending in Sum or Count only grow."""

    name: str
    endpoint: str
    variant: str
    instance: str
    value: float
    limit: str | None = None


class InterruptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to free capacity."""

    jobs: int | None = None
    """None: all"""


class InterruptedJobs(msgspec.Struct, frozen=True, kw_only=True):
    attempt_ids: tuple[str, ...]


class JobSample(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one host of a running job, under SageMaker's name."""

    name: str
    """`CPUUtilization`, `MemoryUtilization` or `DiskUtilization`; percent"""
    job: str
    host: str
    value: float


class ErrorMessage(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
