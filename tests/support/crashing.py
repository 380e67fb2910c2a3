"""Real control and agent processes that are killed at a chosen instant of a training job's life.

Nothing of it is in what is tested: the process puts it around a few functions before it begins.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

__all__ = ["CRASHES", "Crash", "Roles"]

# Each process is a copy of one that has loaded everything: it begins in a moment.
_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ["sagehen.roles.agent", "sagehen.roles.control"]

CRASHES = ("before-commit", "after-commit", "before-call", "after-call")
"""Of control. An agent has `phase`: the moment it enters one."""


@dataclass(frozen=True)
class Crash:
    """The `number`th time, from 1, that `what` happens."""

    what: str
    number: int


@dataclass
class Roles:
    """The roles of one home, without a supervisor: who dies stays dead."""

    home: Path
    settings: dict[str, str] = field(default_factory=dict)
    running: list[BaseProcess] = field(default_factory=list)

    @contextmanager
    def run(self, role: str, crash: Crash | None = None) -> Iterator[BaseProcess]:
        """Have a process for as long as the block runs."""
        process = self.start(role, crash)
        try:
            yield process
        finally:
            self.kill(process)

    def start(self, role: str, crash: Crash | None = None) -> BaseProcess:
        _CONTEXT.set_forkserver_preload(_LOADED)
        chosen = {"SAGEHEN_HOME": str(self.home), **self.settings}
        process = _CONTEXT.Process(target=_run, args=(role, chosen, crash), daemon=True)
        process.start()
        self.running.append(process)
        return process

    def kill(self, process: BaseProcess) -> None:
        process.kill()
        process.join(10)
        self.running.remove(process)

    def close(self) -> None:
        for process in list(self.running):
            self.kill(process)


def _run(role: str, settings: dict[str, str], crash: Crash | None) -> None:
    os.environ.update(settings)
    sys.argv = [f"sagehen.roles.{role}", "--parent", str(os.getppid())]
    log = os.open(Path(settings["SAGEHEN_HOME"]) / "logs" / f"{role}.log", _APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if crash is not None:
        _INSTALL[crash.what](_Bomb(crash.number))
    from sagehen.roles import agent, control
    from sagehen.roles.common import run, start_role

    main = {"agent": agent._main, "control": control._main}[role]
    run(main(start_role(role)))


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@dataclass
class _Bomb:
    left: int

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _at_commits(bomb: _Bomb, before: bool) -> None:
    """Of transactions that have changed a training job."""
    from sqlalchemy import Connection, Engine, event

    @event.listens_for(Engine, "before_cursor_execute")
    def note(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE training_jobs"):
            connection.info["sagehen.tests.writes_jobs"] = True

    commit = Connection.commit

    def counted(connection: Connection) -> None:
        counts = connection.info.pop("sagehen.tests.writes_jobs", False)
        if counts and before:
            bomb.count()
        commit(connection)
        if counts and not before:
            bomb.count()

    Connection.commit = counted  # type: ignore[method-assign]


def _at_calls(bomb: _Bomb, before: bool) -> None:
    """Of the agent, to do something about a job."""
    from sagehen.agent import client

    exchange = client.exchange

    async def counted(address: str, method: str, path: str, *more: Any, **options: Any) -> Any:
        counts = method != "GET" and path.startswith("/jobs/")
        if counts and before:
            bomb.count()
        answer = await exchange(address, method, path, *more, **options)
        if counts and not before:
            bomb.count()
        return answer

    client.exchange = counted  # type: ignore[assignment]


def _at_phases(bomb: _Bomb) -> None:
    from sagehen.agent.jobs.job import Job

    note = Job._note

    def counted(job: Job, *phase: Any) -> None:
        note(job, *phase)
        bomb.count()

    Job._note = counted  # type: ignore[method-assign]


_INSTALL: dict[str, Callable[[_Bomb], None]] = {
    "before-commit": lambda bomb: _at_commits(bomb, before=True),
    "after-commit": lambda bomb: _at_commits(bomb, before=False),
    "before-call": lambda bomb: _at_calls(bomb, before=True),
    "after-call": lambda bomb: _at_calls(bomb, before=False),
    "phase": _at_phases,
}
