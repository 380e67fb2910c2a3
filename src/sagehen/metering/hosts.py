"""What agents tell of what runs there, as samples.

Of instances, those of a variant, as SageMaker tells of all together; of jobs, those of a host.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from sagehen.api.exposition import InstanceSample
from sagehen.domain.statistics import Statistics, of_values
from sagehen.metrics import METRICS, OWN, Kind

__all__ = ["Hosts", "JobSample", "Look", "looks_at_instances", "looks_at_jobs"]

_Place = tuple[str, ...]
"""A metric's name, endpoint, variant, instance."""
_Recorded = tuple[str, dict[str, str], Statistics]

_COUNTS = ("LoadedModelCount",)
"""Gauges that are told as they were last: a mean of counts is a count of nothing."""


class Look(NamedTuple):
    """What a gauge stands at, as `Recorder.look` takes it."""

    name: str
    dimensions: dict[str, str]
    value: float
    source: str = ""
    latest: bool = False


class JobSample(Protocol):
    """One number about one host of a training job, by SageMaker's name, as its agent tells it."""

    @property
    def name(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def value(self) -> float: ...


class Hosts:
    """Remembers what it was told last, for what only grows."""

    def __init__(self) -> None:
        self._before: dict[_Place, float] = {}

    def samples_of(self, samples: Iterable[InstanceSample]) -> Iterator[_Recorded]:
        """Metric, dimensions by CloudWatch's names, and values: the times that came in."""
        growing: dict[_Place, float] = {
            (one.name, one.endpoint, one.variant, one.instance): one.value
            for one in samples
            if one.name not in METRICS
        }
        yield from self._times(growing)
        self._before = growing

    def _times(self, growing: dict[_Place, float]) -> Iterator[_Recorded]:
        for (name, *whose), now in growing.items():
            timing = name.removesuffix("Count")
            if timing == name or timing not in METRICS:
                continue
            count = self._added((name, *whose), now)
            total = self._added(
                (timing + "Sum", *whose), growing.get((timing + "Sum", *whose), 0.0)
            )
            if count > 0:
                yield timing, _dimensions(*whose[:2]), of_values({total / count: count})

    def _added(self, place: tuple[str, ...], now: float) -> float:
        """Of an instance that is new, or counts anew, all of it."""
        before = self._before.get(place, 0.0)
        return now - before if before <= now else now


def _dimensions(endpoint: str, variant: str) -> dict[str, str]:
    return {"EndpointName": endpoint, "VariantName": variant}


def looks_at_instances(samples: Iterable[InstanceSample]) -> Iterator[Look]:
    """The gauges of instances; those of a variant are told of together."""
    for one in samples:
        metric = METRICS.get(one.name)
        if metric is not None and metric.kind is Kind.GAUGE and metric.namespace != OWN:
            dimensions = _dimensions(one.endpoint, one.variant)
            yield Look(one.name, dimensions, one.value, one.instance, one.name in _COUNTS)


def looks_at_jobs(samples: Iterable[JobSample]) -> Iterator[Look]:
    """The gauges of jobs' hosts; CloudWatch's `Host` is the job's name and the host's."""
    for one in samples:
        name = "Job" + one.name
        if name in METRICS:
            yield Look(name, {"Host": f"{one.job}/{one.host}"}, one.value)
