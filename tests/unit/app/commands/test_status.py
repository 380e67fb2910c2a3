"""What `sagehen status` makes of the server's answer, or of none."""

import io
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sagehen.agent.instances.failures import failed_ping, service_failure
from sagehen.app.commands.status import (
    fetch_status,
    plain_status,
    render_status,
    select_endpoint,
)
from sagehen.base.errors import NotFound, Unavailable
from sagehen.base.home import prepare_home
from support.fleet import instance_spec

VARIANT = {
    "name": "AllTraffic",
    "multi_model": True,
    "desired": 10,
    "in_service": 10,
    "invocations": 1_234_567,
    "errors_4xx": 98_000,
    "errors_5xx": 765,
    "p50_latency_milliseconds": 12.3,
    "p99_latency_milliseconds": 4567.8,
    "memory_bytes": 12_345 * 2**20,
    "loaded_models": 400,
    "instances": [],
}


def shown(
    *variants: dict[str, Any],
    status: str = "InService",
    queue: dict[str, Any] | None = None,
    leaving: int = 0,
) -> str:
    endpoint: dict[str, Any] = {"name": "house-prices", "status": status, "failure_reason": None}
    endpoint["variants"] = variants
    endpoint["queue"] = queue
    endpoint["leaving"] = leaving
    text = io.StringIO()
    console = Console(file=text, width=80)
    console.print(render_status({"url": "http://127.0.0.1:9000", "endpoints": [endpoint]}))
    return text.getvalue()


def test_eighty_columns_show_every_number() -> None:
    told = shown(VARIANT, status="SystemUpdating")

    for value in ("SystemUpdating", "10/10", "1234567", "98765", "12/4568", "400", "12345 MiB"):
        assert value in told


def test_an_asynchronous_endpoint_has_a_queue_and_no_calls() -> None:
    told = shown(VARIANT, queue={"mode": "PAUSED", "queued": 12, "in_process": 4})

    assert "house-prices: PAUSED, 12 queued, 4 in process" in told
    assert "1234567" not in told


@pytest.mark.parametrize(
    ("p50", "p99", "expected"), [(0.347, 9.999, "0.35/10.00"), (10, 11, "10/11")]
)
def test_times_have_the_digits_that_matter(p50: float, p99: float, expected: str) -> None:
    latency = {"p50_latency_milliseconds": p50, "p99_latency_milliseconds": p99}

    assert f" {expected} " in shown({**VARIANT, **latency})


def test_what_was_never_asked_has_no_times() -> None:
    nothing = {"p50_latency_milliseconds": None, "p99_latency_milliseconds": None}

    (row,) = (line for line in shown({**VARIANT, **nothing}).splitlines() if "10/10" in line)
    assert row.count("/") == 1


def test_a_shadow_is_named_as_one() -> None:
    assert "(shadow)" in shown(VARIANT, {**VARIANT, "name": "Next", "shadow": True})
    assert "(shadow)" not in shown({**VARIANT, "shadow": False})


LONG = "good-lightgbm-of-a-team-with-a-long-name-" + "x" * 40


def status_of(*names: str, **changes: Any) -> dict[str, Any]:
    endpoints = [
        {
            "name": name,
            "status": "InService",
            "failure_reason": None,
            "queue": None,
            "variants": [VARIANT, {**VARIANT, "name": "Next"}],
        }
        | changes
        for name in names
    ]
    return {"url": "http://127.0.0.1:9000", "endpoints": endpoints}


class TestPlain:
    def test_each_variant_is_one_line_with_every_name_whole(self) -> None:
        rows = [line.split() for line in plain_status(status_of(LONG, "b")).splitlines()[1:6]]
        assert [row[:4] for row in rows[1:]] == [
            [LONG, "InService", "AllTraffic", "10/10"],
            [LONG, "InService", "Next", "10/10"],
            ["b", "InService", "AllTraffic", "10/10"],
            ["b", "InService", "Next", "10/10"],
        ]

    def test_a_cell_is_never_empty(self) -> None:
        (row,) = plain_status(status_of("a", variants=[])).splitlines()[2:3]
        assert row.split() == ["a", "InService", *["-"] * 7]

    def test_calls_are_said_to_begin_with_the_server(self) -> None:
        assert "since the server started" in plain_status(status_of("a"))
        assert "since the server started" in shown(VARIANT).replace("\n", " ")


def test_a_variant_that_starts_on_demand_says_what_its_instances_wait_for() -> None:
    cold = VARIANT | {"starts_on_demand": True, "in_service": 0, "desired": 0}
    line = "a, variant AllTraffic: no instance runs; the next request starts one"
    assert line in plain_status(status_of("a", variants=[cold])).splitlines()
    starting = {"id": "i-1", "state": "Starting", "failure_reason": None}
    for variant in (VARIANT, cold | {"instances": [starting]}):
        assert "no instance runs" not in plain_status(status_of("a", variants=[variant]))


class TestErrors:
    def test_the_last_error_of_a_variant_stands_below_the_table(self) -> None:
        error = {"at": 1795492096.67, "status": 500, "message": "KeyError: 'x'"}
        told = plain_status(status_of("a", variants=[VARIANT | {"last_error": error}]))
        assert (
            "a, variant AllTraffic: the last error, 500 at 2026-11-24T03:48:16.670Z: KeyError: 'x' "
            "(sagehen logs a)"
        ) in told.splitlines()
        assert "KeyError" not in plain_status(status_of("a", variants=[VARIANT]))

    def test_an_error_stays_in_its_line_and_does_not_reach_the_terminal(self) -> None:
        error = {"at": 1.5, "status": 500, "message": "one\n\x1b[31mtwo\r\tthree"}
        shown = plain_status(status_of("a", variants=[VARIANT | {"last_error": error}]))
        assert ": one [31mtwo three (sagehen logs a)" in shown


class TestReasons:
    def test_the_cause_stands_there_once_and_without_sagemakers_sentence(self) -> None:
        reason = failed_ping("primary", instance_spec(), "KeyError: 'x' (inference.py, line 2)")
        told = plain_status(status_of("a", "b", failure_reason=reason))
        assert "a, b: KeyError: 'x' (inference.py, line 2)" in told.splitlines()
        assert "ping health check" not in told

    def test_one_of_another_form_stays_as_it_is(self) -> None:
        told = plain_status(status_of("a", failure_reason="It is odd (really)"))
        assert "a: It is odd (really)" in told.splitlines()
        told = plain_status(status_of("a", failure_reason=service_failure("OSError: (1)")))
        assert "a: OSError: (1)" in told.splitlines()


def test_jobs_are_counted() -> None:
    status = status_of("a") | {
        "training_jobs": {"running": 2, "waiting": 1},
        "transform_jobs": {"running": 0, "waiting": 3},
        "inference_services": [
            {"stage": "old", "running": 0, "waiting": 2, "problem": "It is paused."},
            {"stage": "prod", "running": 1, "waiting": 0, "problem": None},
        ],
    }
    lines = plain_status(status).splitlines()
    assert "Inference service old: 0 running, 2 waiting" in lines
    assert "It is paused." in lines
    assert "Training jobs: 2 running, 1 waiting (sagehen training list)" in lines
    assert "Transform jobs: 0 running, 3 waiting (sagehen transform list)" in lines
    assert "Inference service prod: 1 running, 0 waiting" in lines
    assert "Training jobs" not in plain_status(status_of("a"))


def test_gpus_are_shown_with_their_holders() -> None:
    job = {"training_job": "fit", "host": "algo-1", "fraction": 1.0}
    shared = {"endpoint": "e", "instance": "i-1", "training_job": None, "fraction": 0.25}
    batch = {"transform_job": "b", "instance": "i-2", "fraction": 1.0}
    gpus = [
        {"id": "0", "name": "A10G", "free": 0.0, "holders": [job]},
        {"id": "1", "name": "A10G", "free": 0.5, "holders": [shared, shared]},
        {"id": "2", "name": "A10G", "free": 1.0, "holders": []},
        {"id": "3", "name": "A10G", "free": 0.0, "holders": [batch]},
    ]
    lines = plain_status(status_of("a") | {"gpus": {"gpus": gpus, "problem": None}}).splitlines()
    shown_from = lines.index("GPUs: 4, of which 1 free")
    assert lines[shown_from + 1 : shown_from + 5] == [
        "GPU 0 (A10G): training job fit, algo-1",
        "GPU 1 (A10G): endpoint e, instance i-1 (0.25); endpoint e, instance i-1 (0.25); 0.5 free",
        "GPU 2 (A10G): free",
        "GPU 3 (A10G): transform job b, instance i-2",
    ]
    broken = {"gpus": [], "problem": "nvidia-smi cannot be run"}
    assert "GPUs: nvidia-smi cannot be run." in plain_status(status_of("a") | {"gpus": broken})
    assert "GPU" not in plain_status(status_of("a") | {"gpus": {"gpus": [], "problem": None}})


def test_missing_walls_are_named() -> None:
    status = status_of("a") | {"missing_walls": ["etc (refused): containers share /etc"]}
    line = "Missing wall around containers: etc (refused): containers share /etc."
    assert line in plain_status(status).splitlines()
    assert line in plain_status({**status, "endpoints": []}).splitlines()


def test_one_endpoint_is_shown_with_its_instances() -> None:
    instance = {"id": "i-7", "state": "InService", "failure_reason": None}
    variant = {**VARIANT, "instance_type": "ml.m5.large", "instances": [instance]}
    status = select_endpoint(status_of("a", "b", variants=[variant]), "b")
    told = plain_status(status, details=True)
    assert "b, variant AllTraffic (ml.m5.large), instance i-7: InService" in told.splitlines()
    assert not any(line.startswith("a ") for line in told.splitlines())


def test_one_endpoint_is_shown_with_what_it_waits_for() -> None:
    waits = [
        f"{node}{name}, instance i-1: its containers start."
        for name in ("a", "b", "bb")
        for node in ("", "Node n-1: ")
    ]
    status = select_endpoint(status_of("a", "b") | {"problems": waits}, "b")
    assert [line for line in plain_status(status).splitlines() if line in waits] == waits[2:4]


def test_no_endpoint_is_shown_for_an_unknown_name() -> None:
    with pytest.raises(NotFound, match="no endpoint c"):
        select_endpoint(status_of("a", "b"), "c")


def test_another_program_at_the_address_is_no_server(short_path: Path) -> None:
    home = prepare_home(short_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        home.address.write_text(f"http://127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(Unavailable, match="does not answer"):
            fetch_status(home)
        thread.join()


def test_a_problem_of_the_node_is_shown() -> None:
    problem = "No image can be run: the Docker Engine does not answer."
    status = {"url": "http://127.0.0.1:9000", "endpoints": [], "problems": [problem]}
    assert problem in plain_status(status).splitlines()


def test_a_damaged_state_is_shown_first() -> None:
    for endpoints in ([], [{"name": "e", "status": "InService", "variants": [VARIANT]}]):
        text = io.StringIO()
        status = {"url": "http://here", "state": "The state is damaged.", "endpoints": endpoints}
        Console(file=text, width=80).print(render_status(status))
        assert text.getvalue().startswith("The state is damaged.")


def test_a_scaled_variant_says_between_what_and_why() -> None:
    scaled = {
        "count": "instance count",
        "minimum": 1,
        "maximum": 4,
        "policies": 1,
        "reason": "Policy p: The metric is 60, above the threshold 50 of alarm a.",
    }
    told = " ".join(shown(VARIANT | {"scaling": [scaled]}).split())
    assert (
        "house-prices, variant AllTraffic: instance count from 1 to 4 by 1 policy. Policy p: The "
        "metric is 60, above the threshold 50 of alarm a."
    ) in told


@pytest.mark.parametrize(
    ("leaving", "line"),
    [
        (0, None),
        (1, "house-prices: 1 leaving instance ends its requests"),
        (2, "house-prices: 2 leaving instances end their requests"),
    ],
)
def test_instances_that_leave_are_told(leaving: int, line: str | None) -> None:
    told = shown(VARIANT, leaving=leaving)
    assert "leaving" not in told if line is None else line in told
