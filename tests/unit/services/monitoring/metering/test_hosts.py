"""Measurements of agents and gateways as samples of SageMaker's metrics."""

from dataclasses import dataclass

from sagehen.services.monitoring.metering.hosts import (
    HostUsage,
    instance_gauges,
    job_gauges,
    samples_of,
)
from sagehen.services.monitoring.prometheus.gateway_totals import VariantCounts


@dataclass(frozen=True)
class Measurement:
    name: str
    value: float
    endpoint: str = "e"
    variant: str = "v"
    instance: str = "i-1"
    limit: str | None = None


@dataclass(frozen=True)
class HostMeasurement:
    name: str
    value: float
    job: str = "j"
    host: str = "algo-1"
    transform: bool = False


def timing(count: float, total: float) -> list[Measurement]:
    return [
        Measurement("ModelLoadingTimeCount", count),
        Measurement("ModelLoadingTimeSum", total),
    ]


def added(usage: HostUsage, count: float, total: float) -> list[tuple[float, float]]:
    return [(one.count, one.sum) for _, _, one in usage.samples_of(timing(count, total))]


def test_timings_are_what_was_added_since() -> None:
    usage = HostUsage()
    assert added(usage, 2, 10) == [(2, 10)]
    assert added(usage, 2, 10) == []
    assert added(usage, 3, 14) == [(1, 4)]


def test_a_restarted_agent_counts_from_zero() -> None:
    usage = HostUsage()
    added(usage, 5, 50)
    assert added(usage, 1, 7) == [(1, 7)]


def test_only_gauges_of_sagemaker_are_sampled() -> None:
    measured = [
        Measurement("CPUUtilization", 20),
        Measurement("InstanceMemoryBytes", 2**20),
        Measurement("LoadedModelCount", 3),
        Measurement("Unheard", 1),
    ]
    assert [(one.name, one.value, one.latest) for one in instance_gauges(measured)] == [
        ("CPUUtilization", 20, False),
        ("LoadedModelCount", 3, True),
    ]


def test_hosts_of_jobs_are_named_by_job_and_host() -> None:
    measured = [HostMeasurement("CPUUtilization", 20), HostMeasurement("Unheard", 1)]
    ((name, dimensions, value, *_),) = job_gauges(measured)
    assert (name, dimensions, value) == ("JobCPUUtilization", {"Host": "j/algo-1"}, 20)
    ((name, dimensions, *_),) = job_gauges([HostMeasurement("CPUUtilization", 1, transform=True)])
    assert (name, dimensions) == ("TransformCPUUtilization", {"Host": "j/algo-1"})


def test_an_average_of_errors_is_their_share() -> None:
    counts = VariantCounts(invocations=4, errors_4xx=1)
    samples = dict(samples_of(counts, of_container=False))
    errors = samples["Invocation4XXErrors"]
    assert (errors.sum, errors.count) == (1, 4)
    assert "ModelCacheHit" not in samples
    assert "ContainerInvocation4XXErrors" in dict(samples_of(counts, of_container=True))
