"""What gateways have counted, as the samples that SageMaker's metrics would have of it."""

from collections.abc import Iterator

from sagehen.api.observations import CountsKey, InFlight, VariantCounts
from sagehen.domain.latencies import Latencies
from sagehen.domain.statistics import Statistics, of_latencies, of_set, of_values

__all__ = ["Sample", "concurrency", "dimensions_of", "samples_of"]

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


def concurrency(in_flight: InFlight) -> Statistics:
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
