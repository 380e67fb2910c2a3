"""`sagehen stop`: which process gets a signal, and which does not."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagehen.base.home import Home, locked, prepare_home
from support.cli import run_command

HOLDER = """
import sys
from pathlib import Path
from sagehen.base.home import Home, locked
with locked(Home(Path(sys.argv[1]))):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")


@pytest.fixture
def hold(home: Home) -> "Iterator[Callable[[], subprocess.Popen[str]]]":
    """`hold()` starts a process that holds the home's lock."""
    holders = []

    def start() -> "subprocess.Popen[str]":
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, home.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()


def test_the_server_has_ended_when_the_command_returns(
    home: Home, hold: "Callable[[], subprocess.Popen[str]]"
) -> None:
    server = hold()
    home.address.write_text("http://127.0.0.1:9")
    ended = run_command("stop", "--home", home.path)
    assert (ended.status, ended.stdout.splitlines()[-1]) == (0, "Stopped.")
    assert f"process id {server.pid} is stopping" in ended.stdout
    with locked(home):
        pass


def test_a_process_that_does_not_serve_gets_no_signal(
    home: Home, hold: "Callable[[], subprocess.Popen[str]]"
) -> None:
    home.address.write_text("http://127.0.0.1:9")  # of a server that was killed
    restore = hold()
    ended = run_command("stop", "--home", home.path)
    assert ended.status == 1
    assert f"kill {restore.pid}" in ended.stderr
    assert restore.poll() is None


def test_reload_does_not_end_a_server_without_a_handler(
    home: Home, hold: "Callable[[], subprocess.Popen[str]]"
) -> None:
    """Such as a demo, or a server of a version that knew no reload."""
    server = hold()
    home.address.write_text("http://127.0.0.1:9")
    ended = run_command("reload", "--home", home.path)
    assert (ended.status, server.poll()) == (1, None)
    assert f"process id {server.pid} cannot reload" in ended.stderr


def test_the_id_that_a_killed_server_left_gets_no_signal(home: Home) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        home.lock.write_text(str(other.pid))
        home.address.write_text("http://127.0.0.1:9")
        ended = run_command("stop", "--home", home.path)
        assert (ended.status, other.poll()) == (1, None)
        assert "No server runs with the home" in ended.stderr
    finally:
        other.kill()
        other.wait()


def test_a_home_that_never_was(short_path: Path) -> None:
    ended = run_command("stop", "--home", short_path / "none")
    assert (ended.status, "No server runs" in ended.stderr) == (1, True)


def test_home_of_another_user_is_no_traceback(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:  # root is refused nothing
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    for command in ("stop", "reload"):
        ended = run_command(command, "--home", home.path)
        assert (ended.status, "is another user's" in ended.stderr) == (1, True)


def test_a_second_server_is_told_the_command(home: Home) -> None:
    with locked(home):
        ended = run_command("up", "--home", home.path, "--port", 0)
    assert (ended.status, f"sagehen stop --home {home.path}" in ended.stderr) == (1, True)
