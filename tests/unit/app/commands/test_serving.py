"""What `sagehen up` says when it is ready."""

import subprocess
import sys
from pathlib import Path

import pytest

from sagehen.app.commands import serving
from sagehen.app.server import RunningServer
from sagehen.base.credentials import Credentials
from sagehen.base.home import Home
from support.state import settings_of


@pytest.fixture
def server(tmp_path: Path) -> RunningServer:
    keys = Credentials("AKSHKEY", "very-secret")
    settings = settings_of(tmp_path)
    return RunningServer(
        "http://127.0.0.1:9000", [], Home(tmp_path), keys, settings, lambda new: ([], [])
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_secret_is_printed_to_a_terminal_only(
    server: RunningServer,
    is_terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    serving._announce(server)
    said = capsys.readouterr().out
    assert ("very-secret" in said) == is_terminal
    assert "AWS_ENDPOINT_URL=http://127.0.0.1:9000" in said
    assert f'eval "$(sagehen env --home {server.home.path})"' in said


def test_the_second_signal_ends_a_server_whose_terminal_is_gone() -> None:
    with open("/dev/full", "w") as full:
        program = "from sagehen.app.commands import serving; serving._end_at_once()"
        ended = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (130, b"")
