"""Which fork servers are kept, by servers that only the test starts and ends."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sagehen.agent.launchers import fork_servers as module
from sagehen.agent.launchers.fork_servers import ForkServers
from sagehen.agent.launchers.forkable import ForkKind, server_variables
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from support.clock import SteppedClock

PYTHON = "/env/bin/python"
SKLEARN, TORCH, XGBOOST = (ForkKind(PYTHON, name) for name in ("sklearn", "pytorch", "xgboost"))


class FakeServer:
    def __init__(self, kind: ForkKind) -> None:
        self.kind = kind
        self.is_current = True
        self.is_closed = False
        ended = asyncio.get_running_loop().create_future()
        self.process = SimpleNamespace(pid=1, ended=ended)

    async def close(self) -> None:
        self.is_closed = True


class Starts:
    """Starts servers, or raises the next of `errors`."""

    def __init__(self) -> None:
        self.servers: list[FakeServer] = []
        self.errors: list[Exception] = []

    async def __call__(self, kind: ForkKind, orphans: Orphans, umask: int) -> FakeServer:
        if self.errors:
            raise self.errors.pop(0)
        self.servers.append(FakeServer(kind))
        return self.servers[-1]

    def running(self) -> set[ForkKind]:
        return {server.kind for server in self.servers if not server.is_closed}


def plan(kind: ForkKind, **variables: str) -> LaunchPlan:
    own = {name: server_variables(PYTHON)[name] for name in ("HF_HOME", "LANG", "PYTHONUNBUFFERED")}
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
        command=(kind.python, "-m", "sagehen.containers.modelserver"),
        environment=own | {"PATH": "/bin", "SAGEHEN_ADAPTER": kind.adapter} | variables,
        folder=Path("/x"),
        log=Path("/x/log"),
        log_bytes=1,
        own_folder=Path("/x"),
    )


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
async def make(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "tree_memory_bytes", lambda pid: 1)
    made: list[ForkServers] = []

    def make(most: int = 2, clock: Any = None) -> ForkServers:
        made.append(ForkServers(most, Orphans(), (), clock or SteppedClock(), start=starts))
        return made[-1]

    yield make
    for servers in made:
        await servers.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_ready_server_serves_containers_of_its_kind(make, starts) -> None:
    servers = make()
    servers.keep([SKLEARN])
    assert servers.find(plan(SKLEARN)) is None, "it is not ready"
    await until(lambda: servers.find(plan(SKLEARN)))
    assert servers.find(plan(SKLEARN)) is starts.servers[0]
    assert servers.find(plan(TORCH)) is None
    assert servers.find(plan(SKLEARN, LD_PRELOAD="/x.so")) is None
    assert servers.find(replace(plan(SKLEARN), may_fork=False)) is None


async def test_those_that_were_used_last_are_kept(make, starts) -> None:
    servers = make(most=2)
    servers.keep([SKLEARN, TORCH, XGBOOST])
    await until(lambda: starts.running() == {SKLEARN, TORCH})
    servers.find(plan(XGBOOST))
    servers.find(plan(TORCH))
    await until(lambda: starts.running() == {XGBOOST, TORCH})


async def test_a_kind_that_nobody_needs_any_more_is_ended(make, starts) -> None:
    servers = make()
    servers.keep([SKLEARN, TORCH])
    await until(lambda: starts.running() == {SKLEARN, TORCH})
    servers.keep([TORCH])
    await until(lambda: starts.running() == {TORCH})
    assert servers.find(plan(SKLEARN)) is None
    await servers.close()
    assert starts.running() == set()


async def test_a_server_that_has_ended_is_replaced_after_a_pause(make, starts) -> None:
    clock = SteppedClock()
    servers = make(clock=clock)
    servers.keep([SKLEARN])
    await until(lambda: servers.find(plan(SKLEARN)))
    starts.servers[0].process.ended.set_result(None)
    await until(lambda: servers.find(plan(SKLEARN)) is None)
    assert len(starts.servers) == 1
    await until(lambda: clock._sleepers)
    clock.advance(module.FIRST_RETRY_SECONDS * 2)
    await until(lambda: servers.find(plan(SKLEARN)) is starts.servers[-1] is not starts.servers[0])


async def test_one_that_has_failed_is_replaced(make, starts) -> None:
    servers = make()
    servers.keep([SKLEARN])
    await until(lambda: servers.find(plan(SKLEARN)))
    servers.replace(starts.servers[0])
    assert servers.find(plan(SKLEARN)) is None
    await until(lambda: starts.servers[0].is_closed)


async def test_one_that_does_not_start_is_tried_again(make, starts, caplog) -> None:
    clock = SteppedClock()
    starts.errors = [OSError(0, "1 threads were started by the imports")]
    servers = make(clock=clock)
    servers.keep([SKLEARN])
    await until(lambda: clock._sleepers)
    assert "1 threads were started by the imports" in caplog.text
    clock.advance(module.FIRST_RETRY_SECONDS * 2)
    await until(lambda: servers.find(plan(SKLEARN)))


async def test_one_with_old_libraries_is_replaced(make, starts, caplog) -> None:
    clock = SteppedClock()
    servers = make(clock=clock)
    servers.keep([SKLEARN])
    await until(lambda: servers.find(plan(SKLEARN)))
    starts.servers[0].is_current = False
    assert servers.find(plan(SKLEARN)) is None
    await until(lambda: starts.servers[0].is_closed)


def test_the_versions_change_with_what_is_installed(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    before = module._versions([str(tmp_path), missing])
    (tmp_path / "package").mkdir()
    assert module._versions([str(tmp_path), missing]) != before
