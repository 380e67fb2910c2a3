"""What a real server tells of the requests that it has answered."""

import re
import urllib.request

import pytest

from support.cli import run_command

CALLS = 20


@pytest.fixture(scope="module")
def asked(server, deploy):
    """The server, which keeps an access log; its endpoint `counted` has answered some calls."""
    deploy.endpoint("counted", InitialInstanceCount=2)
    for _ in range(CALLS):
        deploy.invoke("counted")
    return server


def figures(server):
    """Values of the metrics by what stands before them."""
    with urllib.request.urlopen(f"{server.url}/_sagehen/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


def test_times_are_told_with_percentiles(asked, wait_until):
    endpoint, variant = 'endpoint="counted"', 'variant="AllTraffic"'
    labels = f"{endpoint},{variant}"
    model = "sagehen_model_latency_microseconds"
    wait_until(lambda: figures(asked).get(f"{model}_count{{{labels}}}") == CALLS)
    told = figures(asked)
    for time in (model, "sagehen_overhead_latency_microseconds"):
        p50, p90, p99 = (
            told[f'{time}{{{endpoint},quantile="{share}",{variant}}}']
            for share in ("0.5", "0.9", "0.99")
        )
        assert 0 < p50 <= p90 <= p99 <= 1.01 * told[f"{time}_sum{{{labels}}}"]
    assert told[f"sagehen_invocations_per_instance_total{{{labels}}}"] == CALLS / 2
    assert f"sagehen_concurrent_requests_max{{{labels}}}" in told


def test_status_shows_percentiles(asked, wait_until):
    def row():
        shown = run_command("status", "--home", asked.home).stdout
        return next((line for line in shown.splitlines() if "counted" in line), "")

    wait_until(lambda: f" {CALLS} " in row())
    assert re.search(rf" 2/2 +{CALLS} +0 +\d+\.?\d*/\d+\.?\d* ", row())


def test_each_call_has_a_line_in_the_access_log(asked, wait_until):
    logs = asked.home / "logs"

    def lines():
        told = [
            line for log in logs.glob("gateway-*.log*") for line in log.read_text().splitlines()
        ]
        ended = (line for line in told if "An invocation ended." in line)
        return [line for line in ended if "endpoint=counted" in line]

    wait_until(lambda: len(lines()) == CALLS)
    assert all("status=200" in line for line in lines())
