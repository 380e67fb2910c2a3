"""The benchmarks run; what they measure here means nothing, as tests share the machine."""

import importlib
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

from sagehen.state.migrate import upgrade
from support.warm import PLAIN, run_script

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def run(script, server, *arguments, **variables):
    environment = {**server.env, "PYTHONPATH": PLAIN, "BENCHMARK_HOME": str(server.home)}
    environment |= variables
    return run_script(BENCHMARKS / script, arguments, environment, 250)


def test_throughput_compares_answers_and_prints_a_table(server):
    finished = run("throughput.py", server, "--seconds", "0.02", "--repeats", "1", "--at-once")
    assert finished.returncode == 0, finished.stderr
    for connections in ("1 connection", "8 connections", "64 connections"):
        assert f"## {connections}\n" in finished.stdout
    assert finished.stdout.count("| Sagehen (signed, through the gateway) |") == 3
    assert finished.stdout.count("times as fast") == 6


def test_overhead_compares_answers_and_prints_a_table(server):
    finished = run("overhead.py", server, "--seconds", "0.02", "--repeats", "1", "--at-once")
    assert finished.returncode == 0, finished.stderr
    assert "| The container, called directly |" in finished.stdout
    assert "| Sagehen (signed, through the gateway) |" in finished.stdout
    if shutil.which("nginx"):
        assert "| nginx (not signed) |" in finished.stdout
    else:
        assert "apt-get install -y nginx-light" in finished.stderr


def test_answers_from_offline_results_stand_next_to_a_models(server):
    arguments = ("--keys", "2000", "--connections", "2", "--seconds", "0.02", "--at-once")
    finished = run("offline_results.py", server, *arguments)
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"^\| 2,000 \| .* \| \d+ MiB \|$", finished.stdout, re.MULTILINE)
    assert len(re.findall(r"^\| pages .* µs \|$", finished.stdout, re.MULTILINE)) == 2
    rows = re.findall(r"^\| 2 \| (.*) \| [\d,]+ \| .* \|$", finished.stdout, re.MULTILINE)
    assert rows == ["offline results", "XGBoost model"]


def test_the_cost_of_a_signature_stands_next_to_botocores(server):
    finished = run("signatures.py", server, "--seconds", "0.1")
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"^\| Sagehen, .* \| \d+\.\d \|$", finished.stdout, re.MULTILINE)
    assert re.search(r"^\| botocore, .* \| \d+\.\d \|$", finished.stdout, re.MULTILINE)


def test_the_cost_of_a_connection_stands_next_to_the_parsers_and_to_another_checkouts(server):
    source = str(BENCHMARKS.parent / "src")
    finished = run("http1.py", server, "--seconds", "0.02", "--rounds", "1", "--before", source)
    assert finished.returncode == 0, finished.stderr
    assert "| side | before: µs a request | now: µs a request |" in finished.stdout
    rows = re.findall(r"^\| (.*) \| \d+\.\d\d \| \d+\.\d\d \|$", finished.stdout, re.MULTILINE)
    assert len(rows) == 5
    assert {"the gateway's connection", "the model server's connection"} < set(rows)


def test_the_cost_of_an_adapter_stands_next_to_the_bare_call(server):
    finished = run("adapters.py", server, "--only", "lightgbm,xgboost", "--seconds", "0.05")
    assert finished.returncode == 0, finished.stderr
    for name, rows in (("lightgbm", 1), ("lightgbm", 64), ("xgboost", 1), ("xgboost", 64)):
        line = rf"^\| {name} \| {rows} \| \d+\.\d \| \d+\.\d \| [+-]\d+\.\d \|$"
        assert re.search(line, finished.stdout, re.MULTILINE)


def test_routing_compares_strategies_and_draws_them(server, tmp_path):
    how = ("--quick", "--at-once", "--seconds", "0.2")
    finished = run("routing.py", server, *how, "--save", "--into", str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    for name in ("RANDOM", "LEAST_OUTSTANDING_REQUESTS", "one ideal queue (simulated)"):
        assert finished.stdout.count(f"| {name} |") == 2
    assert "(routing.png)" in (tmp_path / "routing.md").read_text()
    assert (tmp_path / "routing.png").read_bytes().startswith(b"\x89PNG")


def test_hostile_clients_are_borne(server):
    how = ("--only", "idle,control,readers", "--scale", "0.01", "--seconds", "0.1")
    finished = run("hostile.py", server, *how)
    assert finished.returncode == 0, finished.stderr
    sizes = r"\d+ → \d+ → \d+"
    rows = re.findall(
        rf"^\|.* \| now \| {sizes} \| {sizes} \| (\d+) of \1 \|", finished.stdout, re.M
    )
    assert len(rows) == 3, finished.stdout


def test_jobs_end_and_stand_beside_a_loop(server):
    finished = run("jobs.py", server, "--jobs", "6", "--only", "loop,service", "--at-once")
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"^\| A loop of threads that start it \| \d+\.\d \|", finished.stdout, re.M)
    assert re.search(
        r"^- Sagehen: the Async-Inference-Service: overhead \d+ ms", finished.stdout, re.M
    )


def test_soak_kills_and_loses_nothing(server):
    how = ("--at-once", "--minutes", "0.06", "--peak-seconds", "0.1", "--share", "0.05")
    what = ("--instances", "2", "--gateways", "2", "--connections", "8")
    kills = ("--kills-per-minute", "80", "--kill-gateways")
    finished = run("soak.py", server, *how, *what, *kills)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| Nothing is lost | 0 lost | yes |" in finished.stdout
    assert "| everything serves, nothing is outstanding | yes |" in finished.stdout
    assert re.search(r"^\| instance \| [1-9]", finished.stdout, re.MULTILINE)


@pytest.fixture
def fickle_server():
    """The port of a server that answers in turn right, wrong, with 503, and not at all."""
    answers = cycle([(200, b"right"), (200, b"wrong"), (503, b"right"), None])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_in_turn, args=(listener, answers)).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _answer_in_turn(listener, answers):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while connection.recv(1000) and (answer := next(answers)):
                head = f"HTTP/1.1 {answer[0]} X\r\nContent-Length: {len(answer[1])}\r\n\r\n"
                connection.sendall(head.encode() + answer[1])


def test_the_paced_generator_tells_right_answers_from_all_else(fickle_server, tmp_path):
    requests = tmp_path / "requests.json"
    requests.write_text(json.dumps([["GET / HTTP/1.1\r\n\r\n", "right"]]))
    command = [sys.executable, str(BENCHMARKS / "paced.py"), "127.0.0.1", str(fickle_server)]
    finished = subprocess.run(
        [*command, "1", "40", "0.25", str(requests)], capture_output=True, timeout=120, check=True
    )
    result = json.loads(finished.stdout)
    assert (result["sent"], result["right"], result["failed"]) == (10, 3, 7)
    told = Counter((one["kind"], one["status"]) for one in result["failures"])
    assert told == {("answer", 200): 3, ("answer", 503): 2, ("connection", 0): 2}


@pytest.fixture
def kills(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("kills")


NO_ANSWER = "could not get a response from the house endpoint"


@pytest.mark.parametrize(
    ("name", "differs", "explained"),
    [
        ("i-1", {}, True),
        ("i-1", {"sent_at": 10.1}, False),
        ("i-1", {"at": 9.9}, False),
        ("i-1", {"status": 503}, False),
        ("i-1", {"text": "Your invocation timed out"}, False),
        ("gateway-0", {}, False),
        ("gateway-0", {"kind": "connection", "status": 0}, True),
        ("gateway-0", {"kind": "connection", "status": 0, "port": 2}, False),
        ("gateway-0", {"kind": "connection", "status": 0, "at": 15}, False),
        ("gateway-0", {"kind": "silence", "status": 0}, False),
    ],
)
def test_a_kill_explains_only_what_was_under_way_at_it(kills, name, differs, explained):
    kill = kills.Kill(name, 0, at=10.0, in_flight=1, ports=frozenset({1}))
    failure = {"kind": "answer", "status": 424, "text": NO_ANSWER, "port": 1, "sent_at": 9.8}
    failures = [failure | {"at": 10.2} | differs]
    assert kills.unexplained(failures, [kill]) == ([] if explained else failures)
    # And never more than were under way.
    assert kills.unexplained(failures, [kill]) == failures


def test_peers_measures_whom_it_can_have_and_names_the_others(server, tmp_path):
    # FastAPI is measured in throughput.py's test; a library's import for each worker takes seconds.
    whom = ("--only", "sagehen,torchserve", "--cache", str(tmp_path))
    quick = ("--seconds", "0.02", "--repeats", "1", "--at-once")
    # Without java, nothing has to be installed to see that TorchServe cannot be had.
    finished = run("peers.py", server, *whom, *quick, PATH="/nonexistent")
    assert finished.returncode == 0, finished.stderr
    assert "| Sagehen (signed, through the gateway) |" in finished.stdout
    assert "- TorchServe, batching failed: java is missing." in finished.stdout
    assert "1 connection, within 0.15 ms of Sagehen's container" in finished.stdout


def test_batching_measures_a_model_with_batching_off(server):
    what = ("--models", "xgboost", "--only", "sagehen-off", "--connections", "1,2")
    quick = ("--seconds", "0.02", "--repeats", "1", "--at-once")
    finished = run("batching.py", server, *what, *quick)
    assert finished.returncode == 0, finished.stderr
    assert "| server | 1: req/s | p50 ms | p99 ms | 2: req/s | p50 ms | p99 ms |" in finished.stdout
    assert finished.stdout.count("| Sagehen, batching off |") == 1


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


def test_many_models_are_compared_with_whom_can_be_had(server, tmp_path):
    few = ("--models", "8", "--seconds", "0.02", "--repeats", "1", "--at-once", "--quick")
    whom = ("--only", "sagehen,mms", "--cache", str(tmp_path))
    # Without java, nothing has to be installed to see that multi-model-server cannot be had.
    finished = run("multimodel.py", server, *few, *whom, PATH="/nonexistent")
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"^\| Sagehen \(signed.*\) \| .* \| 8 \|", finished.stdout, re.MULTILINE)
    assert "not measured. java is missing. To have it: apt-get install" in finished.stdout
    assert "warm p90 below 2 ms" in finished.stdout


def test_an_ideal_cache_forgets_the_least_recently_used(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    hits = importlib.import_module("ideal_cache").least_recent_hits
    draws = [0, 1, 0, 2, 0, 1]
    assert hits(draws, [1, 1, 1], 2) == 2 / 6
    assert hits(draws, [1, 1, 1], 3) == 3 / 6
    assert hits(draws, [1, 1, 2], 2) == 1 / 6


def test_asynchronous_requests_are_put_in_and_brought_through(server, tmp_path):
    whom = ("--only", "sagehen,celery", "--parts", "enqueue,through", "--cache", str(tmp_path))
    quick = ("--seconds", "0.1", "--repeats", "1", "--at-once")
    # Without redis-server, nothing has to be installed to see that Celery cannot be had.
    finished = run("async_inference.py", server, *whom, *quick, PATH="/nonexistent")
    assert finished.returncode == 0, finished.stderr
    put_in = r"^\| Sagehen \(signed\), SQLite \| sagehen .* \| a commit of SQLite .*\|"
    assert re.search(
        put_in + r"( [\d,]+ \| [\d.]+ \| [\d.]+ \|){3}$", finished.stdout, re.MULTILINE
    )
    for asked in ("inline bodies", "InputLocation"):
        assert re.search(rf"SQLite, {asked} \| [\d,]+ \|$", finished.stdout, re.MULTILINE)
    assert "appendfsync always failed: redis-server is missing." in finished.stdout
    assert "at least 2,000 durable enqueues/s at 64 connections" in finished.stdout


@pytest.fixture
def asynchronous(monkeypatch):
    """A module of the benchmark of asynchronous endpoints."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"async_{name}")


def test_a_backlog_has_its_size_before_and_after_it_is_measured(asynchronous, tmp_path):
    backlog = asynchronous("backlog")
    upgrade(f"sqlite:///{tmp_path}/state.db")
    queue = backlog.Queue(tmp_path / "state.db")
    for _ in range(2):
        queue.fill(100)
        (spent,) = backlog.measure_in_turns([queue], 0.01)
        assert all(spent[step] > spent[f"{step} alone"] > 0 for step in backlog.STEPS)
        with closing(sqlite3.connect(tmp_path / "state.db")) as state:
            states = state.execute("SELECT state, count(*) FROM async_requests GROUP BY state")
            assert dict(states.fetchall())["QUEUED"] == 100
    assert queue.mebibytes() > 0.1


def test_a_backlogs_targets_are_met_where_it_is_flat_and_small(asynchronous):
    backlog, report = asynchronous("backlog"), asynchronous("report")

    def level(rows, milliseconds, mebibytes):
        keys = [key for step in backlog.STEPS for key in (step, f"{step} alone")]
        spent, memory = dict.fromkeys(keys, milliseconds), {"control": mebibytes}
        return backlog.Level(rows, spent, mebibytes, memory, {"requests_per_second": 1.0})

    lines = report.targets([], [level(1000, 1.0, 150), level(1_000_000, 1.5, 190)])
    assert [line.partition(":")[0] for line in lines] == ["- met"] * 6
    lines = report.targets([], [level(1000, 1.0, 150), level(1_000_000, 1.6, 960)])
    assert [line.partition(":")[0] for line in lines] == ["- NOT MET"] * 6


def test_the_generator_sends_as_many_as_it_is_told(fickle_server, tmp_path):
    requests = tmp_path / "requests.json"
    requests.write_text(json.dumps(["GET / HTTP/1.1\r\n\r\n"]))
    command = [sys.executable, str(BENCHMARKS / "load.py"), "127.0.0.1", str(fickle_server)]
    finished = subprocess.run(
        [*command, "1", "inf", str(requests), "3"], capture_output=True, timeout=120, check=True
    )
    assert json.loads(finished.stdout)["failures"] == 1
