"""The benchmarks run; what they measure here means nothing, as tests share the machine."""

import shutil
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script, server, *arguments):
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        env=server.env,
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
