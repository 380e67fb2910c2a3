"""Messages on the agent's socket, besides those of `frame.container_specs`."""

import msgspec

from sagehen.frame.container_specs import InstanceReport

__all__ = [
    "ErrorMessage",
    "InstanceList",
    "JobSample",
    "LoadRequest",
    "LoadedModel",
    "Sample",
    "TouchRequest",
    "WarmRequest",
]


class InstanceList(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    """grows with every change; a new agent starts higher"""
    instances: tuple[InstanceReport, ...]
    since: int | None = None
    """If set, `instances` are those that are new or different since that version."""
    gone: tuple[str, ...] = ()
    """ids of instances that are gone since then"""


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    target_model: str
    wait_seconds: float = 60
    short_of_memory: bool = False
    """the container lacks memory to answer: unload others"""


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to be called at `/models/{model_name}/invoke`.

    The caller has a lease: the model stays loaded until a TouchRequest releases it, or until the
    model has not been used for a while.
    """

    model_name: str
    hit: bool
    """it was loaded already"""
    wait_microseconds: int
    keep: bool = True
    """False if the model is unloaded when its lease is released: request it each time"""


class WarmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The images of all containers that calls may start at any time."""

    images: tuple[str, ...]


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Models used and leases released since the last request."""

    model_names: tuple[str, ...] = ()
    given_back: dict[str, int] = {}
    """numbers of released leases by model"""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one instance; names ending in Sum or Count only grow."""

    name: str
    endpoint: str
    variant: str
    instance: str
    value: float
    detail: str | None = None
    """the value of the metric's last dimension, if it has more than the instance's"""


class JobSample(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one host of a running job, under SageMaker's name."""

    name: str
    """`CPUUtilization` and others of /aws/sagemaker/TrainingJobs or TransformJobs; percent"""
    job: str
    host: str
    value: float
    transform: bool = False
    """the job is a transform job, and the host one of its instances"""


class ErrorMessage(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
