"""Names of metrics in CloudWatch and Prometheus."""

from collections import Counter

from sagehen.base.metrics import METRICS, Metric, MetricKind


def test_cloudwatch_sees_a_variant_and_not_its_instances() -> None:
    metric = Metric(
        "m", None, MetricKind.GAUGE, "None", "Help.", ("endpoint", "variant", "instance")
    )
    assert metric.cloudwatch_dimensions == ("EndpointName", "VariantName")
    assert metric.cloudwatch_name == "m"


def test_no_two_metrics_are_one_to_cloudwatch() -> None:
    keys = Counter(
        (metric.namespace, metric.cloudwatch_name, metric.dimensions) for metric in METRICS.values()
    )
    assert keys.most_common(1)[0][1] == 1


def test_no_two_metrics_are_one_to_prometheus() -> None:
    exposed = Counter(metric.exposed_as for metric in METRICS.values() if metric.exposed_as)
    assert exposed.most_common(1)[0][1] == 1
    assert all(name.startswith("sagehen_") for name in exposed)
