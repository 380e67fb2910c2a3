"""`sagehen demo`: the whole story runs, ends by itself, and tells when something is off."""

import io
import re
import signal
import subprocess

import pytest
from rich.console import Console

from sagehen import demo
from support.server import SAGEHEN, Server, eventually, run_to_its_end


@pytest.fixture(scope="module")
def told(server):
    """What the command prints, over a server of its own."""
    return run_to_its_end([SAGEHEN, "demo"], {**server.env, "COLUMNS": "120"})


def test_demo_tells_the_article_s_story(told):
    for city in ("Houston_TX", "Chicago_IL", "NewYork_NY"):
        assert f"Using model {city}.tar.gz to predict price of this house:" in told
    assert len(re.findall(r"\d+\.\d\d USD, took \d+\.\d ms \(cold\)", told)) == 3
    assert len(re.findall(r"\d+\.\d\d USD, took \d+\.\d ms \(warm\)", told)) == 2


def test_demo_sums_up(told):
    assert re.search(r"models loaded\W+16 of 16", told)
    assert re.search(r"cache hit ratio\W+\d\d\.\d%", told)
    assert "2,741.76 USD" in told  # 16 endpoints of 2 x ml.c5.large, as the article counts
    assert "Everything is as it should be" in told


def test_demo_keeps_the_server_until_told_to_end_and_can_run_on_it_again(short_path):
    kept = Server(short_path / "home", {})
    with (short_path / "output").open("w+") as output:
        running = subprocess.Popen(
            [SAGEHEN, "demo", "--keep", "--home", str(kept.home)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            eventually(lambda: "is ready at" in (short_path / "output").read_text(), 90)
            keys = kept.env["AWS_ACCESS_KEY_ID"], kept.env["AWS_SECRET_ACCESS_KEY"]
            again = io.StringIO()
            assert demo.run(kept.url, *keys, "us-east-1", Console(file=again)), again.getvalue()
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0


def test_demo_says_what_is_off(server):
    output = io.StringIO()
    assert not demo.run(
        server.url, "AKIAWRONG", "wrong", "us-east-1", Console(file=output, width=200)
    )
    assert "The demo cannot go on" in output.getvalue()
