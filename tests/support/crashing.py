"""Real control and agent processes that are killed at a chosen instant of a training job's life.

Nothing of it is in what is tested: the process puts it around a few functions before it begins.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from support.forks import FORKING, be_warm
from support.server import eventually

__all__ = ["CRASHES", "Crash", "Roles"]

_COUNTING = threading.Lock()

CRASHES = ("before-commit", "after-commit", "before-call", "after-call")
"""Of control. An agent has `phase`: the moment it enters one."""


@dataclass(frozen=True)
class Crash:
    """The n-th time that `what` happens in a process, from when it is armed with n."""

    what: str
    left: Any = field(default_factory=lambda: FORKING.Value("i", lock=False))
    """In memory that is shared with the process; it goes on below 0, where nothing crashes."""

    def arm(self, number: int) -> None:
        """Once the process does nothing more that counts."""
        seen: list[int] = []

        def is_still() -> bool:
            seen.append(self.left.value)
            return seen[-2:-1] == seen[-1:]

        eventually(is_still)
        self.left.value = number

    def count(self) -> None:
        """It happens."""
        with _COUNTING:
            self.left.value -= 1
            if self.left.value == 0:
                os.kill(os.getpid(), signal.SIGKILL)


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
        be_warm()
        chosen = {"SAGEHEN_HOME": str(self.home), **self.settings}
        process = FORKING.Process(target=_run, args=(role, chosen, crash), daemon=True)
        process.start()
        self.running.append(process)
        return process

    def kill(self, process: BaseProcess) -> None:
        process.kill()
        process.join(60)
        self.running.remove(process)

    def close(self) -> None:
        for process in list(self.running):
            self.kill(process)


def _run(role: str, settings: dict[str, str], crash: Crash | None) -> None:
    os.environ.update(settings)
    sys.argv = [f"sagehen.app.roles.{role}", "--parent", str(os.getppid())]
    log = os.open(Path(settings["SAGEHEN_HOME"]) / "logs" / f"{role}.log", _APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if crash is not None:
        _INSTALL[crash.what](crash)
    from sagehen.app.roles import agent, control
    from sagehen.app.roles.common import run, start_role
    from sagehen.base.config import load_settings
    from sagehen.base.pickled_settings import pickle_settings
    from sagehen.frame import leased_loop
    from sagehen.services.sagemaker.training.reconciler import loop

    # What the test itself writes into the state tells no other process.
    leased_loop.LONGEST_REST_SECONDS = 0.05
    vars(loop)["LONGEST_REST_SECONDS"] = 0.05

    reading, writing = os.pipe()
    os.write(writing, pickle_settings(load_settings()))
    os.dup2(reading, 0)
    main = {"agent": agent._main, "control": control._main}[role]
    run(main(start_role(role)))


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def _at_commits(crash: Crash, before: bool) -> None:
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
            crash.count()
        commit(connection)
        if counts and not before:
            crash.count()

    Connection.commit = counted  # type: ignore[method-assign]


def _at_calls(crash: Crash, before: bool) -> None:
    """Of the agent, to do something about a job."""
    from sagehen.agent import client

    call = vars(client)["call_once"]

    async def counted(address: str, method: str, path: str, *more: Any, **options: Any) -> Any:
        counts = method != "GET" and path.startswith("/jobs/")
        if counts and before:
            crash.count()
        answer = await call(address, method, path, *more, **options)
        if counts and not before:
            crash.count()
        return answer

    vars(client)["call_once"] = counted


def _at_phases(crash: Crash) -> None:
    from sagehen.agent.jobs.job import JobAttempt

    record = JobAttempt._record_phase

    def counted(job: JobAttempt, *phase: Any) -> None:
        record(job, *phase)
        crash.count()

    JobAttempt._record_phase = counted  # type: ignore[method-assign]


_INSTALL: dict[str, Callable[[Crash], None]] = {
    "before-commit": lambda crash: _at_commits(crash, before=True),
    "after-commit": lambda crash: _at_commits(crash, before=False),
    "before-call": lambda crash: _at_calls(crash, before=True),
    "after-call": lambda crash: _at_calls(crash, before=False),
    "phase": _at_phases,
}
