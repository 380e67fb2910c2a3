"""Converts the measurements of agents and gateways into samples of SageMaker's metrics."""

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
    "ServerlessLimits",
    "concurrency",
    "dimensions_of",
    "instance_gauges",
    "job_gauges",
    "samples_of",
    "serverless_samples",
]

_SampleKey = tuple[str, ...]
"""metric name, endpoint, variant, instance"""
_Recorded = tuple[str, dict[str, str], Statistics]

MOST_MISSED = 30
"""samples without a counter, after which it is forgotten"""
_COUNTS = ("LoadedModelCount",)
"""gauges for which the last value is kept, as a mean count is meaningless"""


class GaugeReading(NamedTuple):
    """Arguments of `Recorder.look`."""

    name: str
    dimensions: dict[str, str]
    value: float
    source: str = ""
    latest: bool = False


class HostSample(Protocol):
    """A measurement of one host of a training or transform job, named as in SageMaker."""

    @property
    def name(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def transform(self) -> bool: ...


class HostUsage:
    """Keeps the last counter values, to compute increases."""

    def __init__(self) -> None:
        self._before: dict[_SampleKey, float] = {}
        self._missed: dict[_SampleKey, int] = {}
        """in how many samples a counter has been missing, as those of a node that is slow"""

    def samples_of(
        self, samples: Iterable[InstanceSample], counts_new: bool = True
    ) -> Iterator[_Recorded]:
        """Yields metric, CloudWatch dimensions and values of new timings.

        Args:
            counts_new: whether counters never seen before began at zero now; if not, they are only
                remembered.
        """
        growing: dict[_SampleKey, float] = {
            (sample.name, sample.endpoint, sample.variant, sample.instance): sample.value
            for sample in samples
            if sample.name not in METRICS
        }
        if not counts_new:
            self._before = {**growing, **self._before}
        yield from self._times(growing)
        missing = self._before.keys() - growing.keys()
        missed = {key: self._missed.get(key, 0) + 1 for key in missing}
        self._missed = {key: count for key, count in missed.items() if count <= MOST_MISSED}
        self._before = {**{key: self._before[key] for key in self._missed}, **growing}

    def _times(self, growing: dict[_SampleKey, float]) -> Iterator[_Recorded]:
        for (name, *owner), now in growing.items():
            timing = name.removesuffix("Count")
            if timing == name or timing not in METRICS:
                continue
            count = self._added((name, *owner), now)
            total = self._added(
                (timing + "Sum", *owner), growing.get((timing + "Sum", *owner), 0.0)
            )
            if count > 0:
                yield timing, _dimensions(*owner[:2]), of_values({total / count: count})

    def _added(self, key: tuple[str, ...], now: float) -> float:
        """Returns the increase; for new or restarted counters, the whole value."""
        before = self._before.get(key, 0.0)
        return now - before if before <= now else now


def _dimensions(endpoint: str, variant: str) -> dict[str, str]:
    return {"EndpointName": endpoint, "VariantName": variant}


def instance_gauges(samples: Iterable[InstanceSample]) -> Iterator[GaugeReading]:
    """Yields the gauges of instances; all instances of a variant share its dimensions."""
    for sample in samples:
        metric = METRICS.get(sample.name)
        if metric is not None and metric.kind is MetricKind.GAUGE and metric.namespace != OWN:
            dimensions = _dimensions(sample.endpoint, sample.variant)
            yield GaugeReading(
                sample.name, dimensions, sample.value, sample.instance, sample.name in _COUNTS
            )


def job_gauges(samples: Iterable[HostSample]) -> Iterator[GaugeReading]:
    """Yields the gauges of job hosts; CloudWatch's `Host` is job name and host."""
    for sample in samples:
        name = ("Transform" if sample.transform else "Job") + sample.name
        if name in METRICS:
            yield GaugeReading(name, {"Host": f"{sample.job}/{sample.host}"}, sample.value)


Sample = tuple[str, Statistics]
"""metric name and values to add"""


def dimensions_of(key: CountsKey) -> dict[str, str]:
    variant = {"EndpointName": key.endpoint, "VariantName": key.variant}
    return {**variant, "ContainerName": key.container} if key.container else variant


def samples_of(counts: VariantCounts, of_container: bool) -> Iterator[Sample]:
    """Yields samples of metrics with new values; containers have their own names for some."""
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
    if counts.offline_results:
        yield "OfflineResults", of_values({1.0: counts.offline_results})
    if counts.provisioned_invocations:
        within = of_values({1.0: counts.provisioned_invocations})
        yield "ServerlessProvisionedConcurrencyInvocations", within
    if counts.spillover_invocations:
        above = of_values({1.0: counts.spillover_invocations})
        yield "ServerlessProvisionedConcurrencySpilloverInvocations", above
    if counts.cache_lookups:
        yield "ModelCacheHit", _share(counts.cache_hits, counts.cache_lookups)
    if counts.loading_wait_count:
        yield "ModelLoadingWaitTime", _evenly(counts.loading_wait_count, counts.loading_wait_sum)


def concurrency(in_flight: InFlightTotals, instances: float) -> Statistics:
    """Returns the concurrency of each of the instances in the last ten seconds."""
    return _scaled(in_flight, 1 / instances)


class ServerlessLimits(NamedTuple):
    max_concurrency: int
    provisioned_concurrency: int
    """0 for none"""


def serverless_samples(in_flight: InFlightTotals, limits: ServerlessLimits) -> Iterator[Sample]:
    """Yields the concurrency of a serverless variant in the last ten seconds, as shares."""
    most, provisioned = limits
    yield "ServerlessConcurrentExecutionsUtilization", _scaled(in_flight, 1 / most)
    if provisioned:
        within = InFlightTotals(
            now=min(provisioned, in_flight.now),
            lowest=min(provisioned, in_flight.lowest),
            highest=min(provisioned, in_flight.highest),
        )
        yield "ServerlessProvisionedConcurrencyExecutions", _scaled(within, 1.0)
        yield "ServerlessProvisionedConcurrencyUtilization", _scaled(within, 1 / provisioned)


def _scaled(in_flight: InFlightTotals, factor: float) -> Statistics:
    extremes = (in_flight.now, in_flight.lowest, in_flight.highest)
    return of_set(1, *(value * factor for value in extremes))


def _share(hits: int, of: int) -> Statistics:
    """Counts 1 per hit and 0 per miss: the average is the rate."""
    return of_values(
        {value: count for value, count in ((1.0, hits), (0.0, of - hits)) if count > 0}
    )


def _evenly(count: int, total: float) -> Statistics:
    """Spreads a sum evenly: the single values are unknown."""
    return of_values({total / count: count})


def _times(name: str, latencies: Latencies) -> Iterator[Sample]:
    if latencies.buckets:
        yield name, of_latencies(latencies)
