"""The benchmarks run; what they measure here means nothing, as tests share the machine."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script, server, *arguments, **variables):
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        env={**server.env, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_throughput_compares_answers_and_prints_a_table(server):
    finished = run("throughput.py", server, "--seconds", "0.2", "--repeats", "1", "--at-once")
    assert finished.returncode == 0, finished.stderr
    for connections in ("1 connection", "8 connections", "64 connections"):
        assert f"## {connections}\n" in finished.stdout
    assert finished.stdout.count("| Sagehen (signed, through the gateway) |") == 3
    assert finished.stdout.count("times as fast") == 6


def test_overhead_compares_answers_and_prints_a_table(server):
    finished = run("overhead.py", server, "--seconds", "0.2", "--repeats", "1", "--at-once")
    assert finished.returncode == 0, finished.stderr
    assert "| The container, called directly |" in finished.stdout
    assert "| Sagehen (signed, through the gateway) |" in finished.stdout
    if shutil.which("nginx"):
        assert "| nginx (not signed) |" in finished.stdout
    else:
        assert "apt-get install -y nginx-light" in finished.stderr


def test_routing_compares_strategies_and_draws_them(server, tmp_path):
    how = ("--quick", "--at-once", "--seconds", "1")
    finished = run("routing.py", server, *how, "--save", "--into", str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    for name in ("RANDOM", "LEAST_OUTSTANDING_REQUESTS", "one ideal queue (simulated)"):
        assert finished.stdout.count(f"| {name} |") == 2
    assert "(routing.png)" in (tmp_path / "routing.md").read_text()
    assert (tmp_path / "routing.png").read_bytes().startswith(b"\x89PNG")


def test_peers_measures_whom_it_can_have_and_names_the_others(server, tmp_path):
    whom = ("--only", "sagehen,fastapi,torchserve", "--cache", str(tmp_path))
    quick = ("--seconds", "0.2", "--repeats", "1", "--at-once")
    # Without java, nothing has to be installed to see that TorchServe cannot be had.
    finished = run("peers.py", server, *whom, *quick, PATH="/nonexistent")
    assert finished.returncode == 0, finished.stderr
    for name in ("Sagehen (signed, through the gateway)", "FastAPI on uvicorn, 2 workers"):
        assert f"| {name} |" in finished.stdout
    assert "- TorchServe, batching failed: java is missing." in finished.stdout
    assert "64 connections, a lower p99 than every one" in finished.stdout
    assert "1 connection, within 0.15 ms of Sagehen's container" in finished.stdout


@pytest.fixture
def peer_results(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("peer_results")


def result(peer_results, key, rate, milliseconds, mode=""):
    """As if it had been measured once, equally at every number of connections."""
    measured = {"requests_per_second": rate, "p50_ms": milliseconds, "p99_ms": milliseconds}
    made = peer_results.Result(key, key, mode)
    made.add(dict.fromkeys((1, 8, 64), measured))
    return made


def test_targets_are_met_by_what_is_as_fast_as_they_say(peer_results):
    others = [
        result(peer_results, "bare", 9000, 1.0),
        result(peer_results, "triton", 4000, 2.0),
        result(peer_results, "torchserve", 4000, 2.0),
        result(peer_results, "ray", 400, 9.0, "default"),
        result(peer_results, "ray", 1000, 9.0, "best"),
    ]
    ours = result(peer_results, "sagehen", 6000, 1.125)
    lines = peer_results.targets([ours, *others])
    assert [line.partition(":")[0] for line in lines] == ["- met"] * 7
    ours = result(peer_results, "sagehen", 3999, 2.0)
    lines = peer_results.targets([ours, *others])
    assert [line.partition(":")[0] for line in lines] == ["- NOT MET"] * 7


def test_of_a_frameworks_modes_the_faster_one_counts(peer_results):
    default = result(peer_results, "litserve", 1000, 9.0, "default")
    best = result(peer_results, "litserve", 500, 9.0, "best")
    ours = result(peer_results, "sagehen", 5000, 1.0)
    lines = peer_results.targets([ours, default, best])
    assert lines[0].startswith("- NOT MET: 64 connections, at least 6 times")


def test_what_was_not_measured_is_not_spoken_of(peer_results):
    ours = result(peer_results, "sagehen", 5000, 1.0)
    missing = peer_results.Result("triton", "triton", failure="not to be had")
    assert peer_results.targets([ours, missing]) == []
    assert peer_results.targets([missing]) == ["- Sagehen was not measured."]
