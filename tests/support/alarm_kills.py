"""Passes over alarms, each in a process that is killed before one of its statements.

`python -m support.alarm_kills STATE FOLDER NOW` leaves a copy of STATE in FOLDER for each.
"""

import os
import shutil
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from sagehen.app.roles.control_services import AlarmParts
from sagehen.base.clock import SYSTEM
from sagehen.base.settings import Settings
from sagehen.frame import tags
from sagehen.services.monitoring.alarms.actions import PolicyTrigger
from sagehen.services.monitoring.alarms.evaluation_pass import EvaluationPass
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership
from sagehen.state.leases import Lease
from support.state import copied_state, opened_state

__all__ = ["INVOKED", "alarms_over", "take_pass"]

INVOKED = "invoked"
"""the ARN under which calls of scaling policies are written, as tags"""


def alarms_over(database: Database) -> AlarmParts:
    """Control's alarms, with a scaling policy that writes a row for each call."""
    return AlarmParts(Settings(), database, Leadership(database, SYSTEM, "me"), _invoke)


def _invoke(connection: Connection, trigger: PolicyTrigger, now: datetime) -> None:
    key = f"{trigger.alarm_name} {now.timestamp()}"
    calls = int(tags.get(connection, INVOKED).get(key, "0"))
    tags.put(connection, INVOKED, {key: str(calls + 1)})


def take_pass(database: Database, now: float) -> None:
    lease = Lease(name="alarms", holder="me", ttl_seconds=1e12)
    with database.write() as connection:
        lease.acquire(connection, 0)
    EvaluationPass(database, lease, alarms_over(database).changes.actions).run(None, now)


def _killed_pass(path: Path, now: float, statement: int) -> None:
    """Commits count like statements."""
    counted = [0]

    def count(*_: Any) -> None:
        counted[0] += 1
        if counted[0] == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    with opened_state(path) as database:
        event.listen(database.engine, "before_cursor_execute", count)
        event.listen(database.engine, "commit", count)
        take_pass(database, now)


def _kill_at_each(state: Path, folder: Path, now: float) -> None:
    """Until a pass ends before it would be killed."""
    with copied_state(state, folder / "warm") as database:
        take_pass(database, now)  # The others find compiled what it has compiled.
    statement, status = 0, -1
    while status:
        statement += 1
        path = folder / f"{statement:03}.db"
        shutil.copyfile(state, path)
        child = os.fork()
        if not child:
            _killed_pass(path, now, statement)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status


if __name__ == "__main__":
    _kill_at_each(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
