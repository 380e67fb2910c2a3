"""`sagehen demo` of the installed wheel: the whole story runs, ends by itself, and tells when
something is off."""

import io
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from support.server import Server, clean_environment, eventually, run_to_its_end


@pytest.fixture(scope="module")
def kept(scripts):
    """`sagehen demo --keep` when its story is told: the process, its server, what it printed."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    server, printed = Server(folder / "home", {}), folder / "output"
    with printed.open("w") as output:
        running = subprocess.Popen(
            [scripts / "sagehen", "demo", "--keep", "--home", str(server.home)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), "COLUMNS": "120"},
        )
    try:
        eventually(lambda: "is ready at" in printed.read_text(), 300)
        yield running, server, printed.read_text()
    finally:
        running.kill()
        running.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def told(kept):
    return kept[2]


def test_demo_tells_the_article_s_story(told):
    for city in ("Houston_TX", "Chicago_IL", "NewYork_NY"):
        assert f"Using model {city}.tar.gz to predict price of this house:" in told
    assert len(re.findall(r"\d+\.\d\d USD, took \d+\.\d ms \(cold\)", told)) == 3
    assert len(re.findall(r"\d+\.\d\d USD, took \d+\.\d ms \(warm\)", told)) == 2


def test_demo_says_at_once_what_it_does(told):
    assert told.startswith("Starting Sagehen ")


def test_every_model_is_better_than_the_average(told):
    rows = re.findall(r"patients/\S+\.tar\.gz\W+\d+\W+\d+\W+([\d.]+)\W+([\d.]+)", told)
    assert len(rows) == 4
    assert all(float(error) < float(baseline) for error, baseline in rows)


def test_demo_sums_up(told):
    assert re.search(r"models loaded\W+14 of 14", told)
    assert re.search(r"cache hit ratio\W+\d\d\.\d%", told)
    assert "2,399.04 USD" in told  # 14 endpoints of 2 x ml.c5.large, as the article counts
    assert re.search(r"All \d+ checks passed", told)


def test_demo_keeps_the_server_until_told_to_end_and_can_run_in_its_home_again(kept, scripts):
    running, server, _ = kept
    assert server.client("sagemaker").list_endpoints()["Endpoints"]
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 0
    # Without --keep it ends by itself.
    command = [str(scripts / "sagehen"), "demo", "--home", str(server.home)]
    again = run_to_its_end(command, clean_environment())
    assert "checks passed" in again


def test_demo_says_what_is_off(server):
    from sagehen.app import demo

    output = io.StringIO()
    assert not demo.run(
        server.url, "AKIAWRONG", "wrong", "us-east-1", Console(file=output, width=200)
    )
    assert "The demo stopped at an error" in output.getvalue()
