"""Processes are started again, whatever kept them from starting."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.app import supervisor as supervisor_module
from sagehen.app.supervisor import Role, Supervisor
from sagehen.base.clock import SystemClock
from sagehen.base.home import Home, prepare_home
from sagehen.base.settings import Settings

NO_MODULE = "No module named sagehen.app.roles.nothing"


class Hasty(SystemClock):
    """Waits a moment, however long it is asked to."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.01)


@pytest.fixture
def home(short_path: Path) -> Home:
    return prepare_home(short_path / "home")


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_process_that_dies_is_started_again_and_its_words_are_kept(home: Home) -> None:
    supervisor = Supervisor([Role("nothing")], Settings(home=home.path), {}, Hasty())
    await supervisor.start()
    await until(lambda: supervisor.most_deaths().deaths >= 2)
    await supervisor.stop()
    assert NO_MODULE in (home.logs / "nothing.log").read_text()


async def test_one_that_ends_keeps_no_newcomer_waiting(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        supervisor = Supervisor(
            [Role("nothing", sockets=(listener,))], Settings(home=home.path), {}, Hasty()
        )
        await supervisor.start()
        await until(lambda: supervisor.most_deaths().deaths >= 1)
        await supervisor.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=120)


@pytest.mark.parametrize("obstacle", ["log", "program"])
async def test_a_process_that_cannot_be_started_is_tried_again(
    home: Home, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home.logs / "nothing.log"
    if obstacle == "log":
        log.mkdir()
    else:
        monkeypatch.setattr(sys, "executable", str(home.path / "python"))
    supervisor = Supervisor([Role("nothing")], Settings(home=home.path), {}, Hasty())
    await supervisor.start()
    await until(lambda: supervisor.most_deaths().deaths >= 2)
    if obstacle == "log":
        log.rmdir()
    monkeypatch.undo()
    # All of it: to stop a process may be to cut off what it says.
    await until(lambda: log.is_file() and NO_MODULE in log.read_text())
    await supervisor.stop()


async def test_a_restarted_process_that_does_not_end_is_killed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose threads wait for a database that does not answer."""
    program = home.path / "stubborn"
    program.write_text("#!/bin/sh\nmkdir $0.first && trap '' TERM\necho started\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_SECONDS", 0.2)
    settings = Settings(home=home.path)
    supervisor = Supervisor([Role("nothing")], settings, {"PATH": os.environ["PATH"]}, Hasty())
    log = home.logs / "nothing.log"

    def starts() -> int:
        return log.read_text().count("started") if log.is_file() else 0

    await supervisor.start()
    await until(lambda: starts() == 1)
    supervisor.restart("nothing", settings)
    supervisor.restart("nothing", settings)
    await until(lambda: starts() == 2)
    await supervisor.stop()
    assert supervisor.most_deaths().deaths == 0
