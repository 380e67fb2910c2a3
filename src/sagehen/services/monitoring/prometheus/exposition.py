"""Exposes the metrics to Prometheus."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)

from sagehen.base.telemetry import METRICS, Metric, MetricKind
from sagehen.frame.statistics import Latencies
from sagehen.services.monitoring.prometheus.gateway_totals import (
    ContainerKey,
    LimitHits,
    VariantCounts,
    VariantKey,
    VariantPresence,
)

__all__ = ["InstanceSample", "Measured", "expose", "measure", "merged"]


class InstanceSample(Protocol):
    """A measurement of one instance by its agent."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def variant(self) -> str: ...

    @property
    def instance(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def detail(self) -> str | None: ...


QUANTILES = (0.5, 0.9, 0.99)
"""exposed for every timing with a sketch"""

Measured = Mapping[str, Mapping[tuple[str, ...], float]]
"""values by exposed name, then by the metric's dimensions in order"""


def measure(
    endpoints: Mapping[str, str],
    totals: Mapping[VariantKey, VariantCounts],
    present: Mapping[VariantKey, VariantPresence],
    containers: Mapping[ContainerKey, VariantCounts],
    limit_hits: LimitHits,
    samples: Iterable[InstanceSample],
) -> Measured:
    """Collects all values to expose, without those of deleted endpoints.

    Args:
        endpoints: EndpointStatus by endpoint name.
    """
    measured: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for endpoint, status in endpoints.items():
        measured["EndpointStatus"][endpoint, status] = 1
    for key, counts in totals.items():
        if key[0] in endpoints:
            for name, value in _values_of(counts).items():
                measured[name][key] = value
    for key, presence in present.items():
        if key[0] in endpoints:
            measured["ConcurrentRequestsPerModelMinimum"][key] = presence.in_flight.lowest
            measured["ConcurrentRequestsPerModelMaximum"][key] = presence.in_flight.highest
            measured["QueuedRequests"][key] = presence.queued.now
            measured["QueuedRequestsMaximum"][key] = presence.queued.highest
    for container, counts in containers.items():
        if container[0] in endpoints:
            for name, value in _values_of_container(counts).items():
                measured[name][container] = value
    for limit, hits in limit_hits.items():
        measured["LimitHits"][limit,] = hits
    for sample in samples:
        dimensions = [sample.endpoint, sample.variant, sample.instance]
        if sample.detail is not None:
            dimensions.append(sample.detail)
        measured[sample.name][tuple(dimensions)] = sample.value
    return measured


def merged(measured: Measured, others: Measured) -> Measured:
    """Merges measurements that have no value in common."""
    return {
        name: {**measured.get(name, {}), **others.get(name, {})} for name in {**measured, **others}
    }


def expose(measured: Measured) -> bytes:
    """Returns Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(measured))
    return generate_latest(registry)


def _values_of(counts: VariantCounts) -> dict[str, float]:
    counted: dict[str, Any] = msgspec.structs.asdict(counts)
    values: dict[str, float] = {}
    for field in msgspec.structs.fields(counts):
        value = counted[field.name]
        if isinstance(value, Latencies):
            values |= _values_of_times(field.encode_name, value)
        else:
            values[field.encode_name] = value
    return values


def _values_of_container(counts: VariantCounts) -> dict[str, float]:
    """SageMaker mostly uses the variant's metric names and tells containers by dimension."""
    return {
        "ContainerInvocations": counts.invocations,
        "ContainerInvocation4XXErrors": counts.errors_4xx,
        "ContainerInvocation5XXErrors": counts.errors_5xx,
        **_values_of_times("ContainerLatency", counts.model_latency),
        **_values_of_times("ContainerOverheadLatency", counts.overhead_latency),
    }


def _values_of_times(name: str, times: Latencies) -> dict[str, float]:
    values: dict[str, float] = {name + "Sum": times.sum, name + "Count": times.count}
    for share in QUANTILES:
        if (quantile := times.quantile(share)) is not None:
            values[name + _quantile_suffix(share)] = quantile
    return values


def _quantile_suffix(share: float) -> str:
    return f"P{share * 100:g}"


class _Collector:
    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Family]:
        for metric in METRICS.values():
            if metric.exposed_as is not None:
                yield _family(metric, metric.exposed_as, self._measured)


def _family(metric: Metric, exposed_as: str, measured: Measured) -> Family:
    if metric.kind is MetricKind.TIMING:
        family = SummaryMetricFamily(exposed_as, metric.help, labels=metric.dimensions)
        sums = _of(metric, measured, "Sum")
        for dimensions, count in _of(metric, measured, "Count").items():
            family.add_metric(dimensions, int(count), sums.get(dimensions, 0))
        for share in QUANTILES:
            for dimensions, value in _of(metric, measured, _quantile_suffix(share)).items():
                labels = dict(zip(metric.dimensions, dimensions, strict=True))
                family.add_sample(exposed_as, {**labels, "quantile": str(share)}, value)
        return family
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    plain = kind(exposed_as, metric.help, labels=metric.dimensions)
    for dimensions, value in _of(metric, measured, "").items():
        plain.add_metric(dimensions, value)
    return plain


def _of(metric: Metric, measured: Measured, suffix: str) -> dict[tuple[str, ...], float]:
    """Selects values with the metric's own dimensions.

    Agents report model waits per instance, too; only the gateways' are exposed.
    """
    values = measured.get(metric.name + suffix, {})
    return {key: value for key, value in values.items() if len(key) == len(metric.dimensions)}
