"""The alert rules ask for metrics, labels and values that exist."""

import re
from pathlib import Path

import pytest
import yaml

from sagehen.base.telemetry import METRICS, Metric, MetricKind
from sagehen.gateway.client.limits import Limit
from sagehen.placement.metrics import NODE_STATES
from sagehen.services.sagemaker.hosting.records import EndpointStatus

FILE = Path(__file__).parents[2] / "deploy" / "prometheus" / "sagehen.rules.yaml"
RULES = yaml.safe_load(FILE.read_text())["groups"][0]["rules"]
VALUES = {"state": NODE_STATES, "limit": set(Limit), "status": set(EndpointStatus)}
SELECTOR = re.compile(r"(sagehen_\w+)(?:\{(.*?)\})?")


def exposed_names(metric: Metric) -> set[str]:
    suffixes = {MetricKind.COUNTER: ["_total"], MetricKind.GAUGE: [""]}
    timing = ["", "_sum", "_count"]
    return {f"{metric.exposed_as}{each}" for each in suffixes.get(metric.kind, timing)}


EXPOSED = {
    name: metric
    for metric in METRICS.values()
    if metric.exposed_as is not None
    for name in exposed_names(metric)
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_is_exposed(rule: dict[str, object]) -> None:
    selectors = SELECTOR.findall(str(rule["expr"]))
    assert selectors or "up{" in str(rule["expr"])
    labels: set[str] = set()
    for name, filters in selectors:
        assert name in EXPOSED
        labels |= set(EXPOSED[name].dimensions)
        for label, value in re.findall(r'(\w+)="(.*?)"', filters):
            assert label in EXPOSED[name].dimensions
            assert value in VALUES[label]
    told = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    assert set(told) <= labels | {"instance"}
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_guide_names_the_file() -> None:
    guide = FILE.parents[2] / "docs" / "howto" / "read-metrics.md"
    assert str(FILE.relative_to(FILE.parents[2])) in guide.read_text()
