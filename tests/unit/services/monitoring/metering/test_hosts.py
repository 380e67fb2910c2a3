"""Measurements of agents and gateways as samples of SageMaker's metrics."""

from dataclasses import dataclass

from sagehen.services.monitoring.metering.hosts import (
    MOST_MISSED,
    HostUsage,
    ServerlessLimits,
    instance_gauges,
    job_gauges,
    samples_of,
    serverless_samples,
)
from sagehen.services.monitoring.prometheus.gateway_totals import InFlightTotals, VariantCounts


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


def test_a_node_that_misses_a_sample_is_not_counted_again() -> None:
    usage = HostUsage()
    added(usage, 5, 50)
    assert list(usage.samples_of([])) == []
    assert added(usage, 6, 57) == [(1, 7)]
    for _ in range(MOST_MISSED + 1):
        assert list(usage.samples_of([])) == []
    assert added(usage, 6, 57) == [(6, 57)], "counters of instances that are gone are forgotten"


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


def test_the_concurrency_of_a_serverless_variant_is_a_share() -> None:
    in_flight = InFlightTotals(now=6, lowest=2, highest=8)
    samples = dict(serverless_samples(in_flight, ServerlessLimits(16, 4)))
    assert {name: (each.minimum, each.sum, each.maximum) for name, each in samples.items()} == {
        "ServerlessConcurrentExecutionsUtilization": (2 / 16, 6 / 16, 8 / 16),
        "ServerlessProvisionedConcurrencyExecutions": (2, 4, 4),
        "ServerlessProvisionedConcurrencyUtilization": (2 / 4, 1, 1),
    }


def test_without_provisioned_concurrency_it_has_no_metrics() -> None:
    samples = dict(serverless_samples(InFlightTotals(), ServerlessLimits(16, 0)))
    assert list(samples) == ["ServerlessConcurrentExecutionsUtilization"]


def test_invocations_above_the_provisioned_concurrency_spill_over() -> None:
    counts = VariantCounts(invocations=5, provisioned_invocations=3, spillover_invocations=2)
    sums = {name: each.sum for name, each in samples_of(counts, False)}
    assert sums["ServerlessProvisionedConcurrencyInvocations"] == 3
    assert sums["ServerlessProvisionedConcurrencySpilloverInvocations"] == 2
