"""What `sagehen status` makes of the server's answer, or of none."""

import io
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sagehen.errors import Unavailable
from sagehen.home import prepare_home
from sagehen.status import fetch_status, render_status

VARIANT = {
    "name": "AllTraffic",
    "multi_model": True,
    "desired": 10,
    "in_service": 10,
    "invocations": 1_234_567,
    "p50_latency_milliseconds": 12.3,
    "p99_latency_milliseconds": 4567.8,
    "memory_bytes": 12_345 * 2**20,
    "loaded_models": 400,
    "instances": [],
}


def shown(
    *variants: dict[str, Any], status: str = "InService", queue: dict[str, Any] | None = None
) -> str:
    endpoint: dict[str, Any] = {"name": "house-prices", "status": status, "failure_reason": None}
    endpoint["variants"] = variants
    endpoint["queue"] = queue
    text = io.StringIO()
    console = Console(file=text, width=80)
    console.print(render_status({"url": "http://127.0.0.1:9000", "endpoints": [endpoint]}))
    return text.getvalue()


def test_eighty_columns_show_every_number() -> None:
    told = shown(VARIANT, status="SystemUpdating")

    for value in ("SystemUpdating", "10/10", "1234567", "12/4568", "400", "12345 MiB"):
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


def test_a_damaged_state_is_shown_first() -> None:
    for endpoints in ([], [{"name": "e", "status": "InService", "variants": [VARIANT]}]):
        text = io.StringIO()
        status = {"url": "http://here", "state": "The state is damaged.", "endpoints": endpoints}
        Console(file=text, width=80).print(render_status(status))
        assert text.getvalue().startswith("The state is damaged.")
