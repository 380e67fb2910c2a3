"""Values in Prometheus's text format."""

from prometheus_client.parser import text_string_to_metric_families

from sagehen.frame.statistics import Latencies, add_to_buckets
from sagehen.services.monitoring.prometheus.exposition import expose, measure, merged
from sagehen.services.monitoring.prometheus.gateway_totals import VariantCounts


def latencies(*microseconds: int) -> Latencies:
    buckets: dict[int, int] = {}
    add_to_buckets(buckets, [(one, 1) for one in microseconds])
    return Latencies(count=len(microseconds), sum=sum(microseconds), buckets=buckets)


def exposed(**totals: VariantCounts) -> dict[tuple[str, str | None], float]:
    endpoints = {"e": "InService"}
    keyed = {(name, "v"): counts for name, counts in totals.items()}
    text = expose(measure(endpoints, keyed, {}, {}, {"queue": 2}, [])).decode()
    return {
        (sample.name, sample.labels.get("quantile")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_timings_of_a_variant() -> None:
    values = exposed(e=VariantCounts(invocations=3, model_latency=latencies(100, 100, 900)))
    assert values["sagehen_invocations_total", None] == 3
    assert values["sagehen_model_latency_microseconds_sum", None] == 1100
    assert values["sagehen_model_latency_microseconds_count", None] == 3
    assert 99 <= values["sagehen_model_latency_microseconds", "0.5"] <= 101
    assert values["sagehen_limit_hits_total", None] == 2
    assert values["sagehen_endpoint_status", None] == 1


def test_deleted_endpoints_are_left_out() -> None:
    assert ("sagehen_invocations_total", None) not in exposed(gone=VariantCounts(invocations=3))


def test_measurements_are_merged() -> None:
    first, second = {"a": {("x",): 1.0}}, {"a": {("y",): 2.0}, "b": {(): 3.0}}
    assert merged(first, second) == {"a": {("x",): 1.0, ("y",): 2.0}, "b": {(): 3.0}}
