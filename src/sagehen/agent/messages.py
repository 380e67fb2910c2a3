"""What is said over the agent's socket, besides the specs and reports of `domain.containers`."""

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
    """Grows with every change of any report; starts anew, higher, with each agent."""
    instances: tuple[InstanceReport, ...]


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    target_model: str
    wait_seconds: float = 60
    short_of_memory: bool = False
    """The container holds the model, but had no memory to answer with it: others are to go."""


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the container holds, to be called at `/models/{model_name}/invoke`.

    It is lent: it stays until it is given back, by a TouchRequest, or is not used for a while.
    """

    model_name: str
    hit: bool
    """It was loaded when it was asked for."""
    wait_microseconds: int
    keep: bool = True
    """False where the model leaves when it is given back: it is to be asked for each time."""


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was done with models since the last one."""

    model_names: tuple[str, ...] = ()
    """Those that were used."""
    given_back: dict[str, int] = {}
    """Those of which a LoadedModel is not needed any more, and how many each."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One number about one instance; those that end in Sum and Count only grow."""

    name: str
    endpoint: str
    variant: str
    instance: str
    value: float
    limit: str | None = None
    """Which limit it is about, if any."""


class InterruptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Give capacity back."""

    jobs: int | None = None
    """How many attempts; None: all."""


class InterruptedJobs(msgspec.Struct, frozen=True, kw_only=True):
    attempt_ids: tuple[str, ...]
    """Those that are ended now for it."""


class JobSample(msgspec.Struct, frozen=True, kw_only=True):
    """One number about one host of a running training job, by SageMaker's name of it."""

    name: str
    """`CPUUtilization`, `MemoryUtilization` or `DiskUtilization`, in percent."""
    job: str
    host: str
    value: float


class ErrorMessage(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
