"""What agents tell of what runs there, as samples.

Of instances, those of a variant, as SageMaker tells of all together; of jobs, those of a host.

What gateways have counted, as the samples that SageMaker's metrics would have of it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from sagehen.base.metrics import METRICS, OWN, MetricKind
from sagehen.frame.statistics import Latencies, Statistics, of_latencies, of_set, of_values
from sagehen.services.monitoring.prometheus.exposition import InstanceSample
from sagehen.services.monitoring.prometheus.gateway_totals import (
    CountsKey,
    InFlightTotals,
    VariantCounts,
)

__all__ = [
    "GaugeReading",
    "HostSample",
    "HostUsage",
    "Sample",
    "concurrency",
    "dimensions_of",
    "looks_at_instances",
    "looks_at_jobs",
    "samples_of",
]

_Place = tuple[str, ...]
"""A metric's name, endpoint, variant, instance."""
_Recorded = tuple[str, dict[str, str], Statistics]

_COUNTS = ("LoadedModelCount",)
"""Gauges that are told as they were last: a mean of counts is a count of nothing."""


class GaugeReading(NamedTuple):
    """What a gauge stands at, as `Recorder.look` takes it."""

    name: str
    dimensions: dict[str, str]
    value: float
    source: str = ""
    latest: bool = False


class HostSample(Protocol):
    """One number about one host of a training job, by SageMaker's name, as its agent tells it."""

    @property
    def name(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def value(self) -> float: ...


class HostUsage:
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


def looks_at_instances(samples: Iterable[InstanceSample]) -> Iterator[GaugeReading]:
    """The gauges of instances; those of a variant are told of together."""
    for one in samples:
        metric = METRICS.get(one.name)
        if metric is not None and metric.kind is MetricKind.GAUGE and metric.namespace != OWN:
            dimensions = _dimensions(one.endpoint, one.variant)
            yield GaugeReading(one.name, dimensions, one.value, one.instance, one.name in _COUNTS)


def looks_at_jobs(samples: Iterable[HostSample]) -> Iterator[GaugeReading]:
    """The gauges of jobs' hosts; CloudWatch's `Host` is the job's name and the host's."""
    for one in samples:
        name = "Job" + one.name
        if name in METRICS:
            yield GaugeReading(name, {"Host": f"{one.job}/{one.host}"}, one.value)


Sample = tuple[str, Statistics]
"""A metric's name, and what is added to it."""


def dimensions_of(key: CountsKey) -> dict[str, str]:
    variant = {"EndpointName": key.endpoint, "VariantName": key.variant}
    return {**variant, "ContainerName": key.container} if key.container else variant


def samples_of(counts: VariantCounts, of_container: bool) -> Iterator[Sample]:
    """Only metrics that have got something. A container of several has its own names for some."""
    requests = counts.invocations
    prefix = "Container" if of_container else ""
    if requests:
        yield f"{prefix}Invocations", of_values({1.0: requests})
        yield f"{prefix}Invocation4XXErrors", _share(counts.errors_4xx, requests)
        yield f"{prefix}Invocation5XXErrors", _share(counts.errors_5xx, requests)
    yield from _times(f"{prefix}Latency" if of_container else "ModelLatency", counts.model_latency)
    yield from _times(f"{prefix}OverheadLatency", counts.overhead_latency)
    if of_container:
        return
    if requests:
        yield "InvocationModelErrors", _share(counts.model_errors, requests)
        yield "InvocationsPerInstance", _evenly(requests, counts.invocations_per_instance)
    if counts.cache_lookups:
        yield "ModelCacheHit", _share(counts.cache_hits, counts.cache_lookups)
    if counts.loading_wait_count:
        yield "ModelLoadingWaitTime", _evenly(counts.loading_wait_count, counts.loading_wait_sum)


def concurrency(in_flight: InFlightTotals) -> Statistics:
    """What was told of the last ten seconds."""
    return of_set(1, in_flight.now, in_flight.lowest, in_flight.highest)


def _share(hits: int, of: int) -> Statistics:
    """1 for each that is, 0 for each that is not: the average is the rate."""
    return of_values({one: n for one, n in ((1.0, hits), (0.0, of - hits)) if n > 0})


def _evenly(count: int, total: float) -> Statistics:
    """Of which only the sum is known."""
    return of_values({total / count: count})


def _times(name: str, latencies: Latencies) -> Iterator[Sample]:
    if latencies.buckets:
        yield name, of_latencies(latencies)
