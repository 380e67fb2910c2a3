"""A state with training jobs in it, and what comes of the passes over it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Connection

from sagehen.domain.events import Event
from sagehen.domain.jobs import JobReport
from sagehen.domain.names import ArnMaker
from sagehen.domain.training import TrainingJobRecord
from sagehen.reconcile.jobs import jobs as jobs_module
from sagehen.reconcile.jobs.agent_view import AgentView
from sagehen.reconcile.jobs.jobs import Asks, JobPass
from sagehen.reconcile.jobs.limits import JobLimits
from sagehen.store import training_jobs
from sagehen.store.database import Database
from sagehen.store.leases import Lease
from support.training_jobs import BEGAN

ARNS = ArnMaker("000000000000", "us-east-1")


@dataclass
class Passes:
    """`take(reports)` is a pass over the jobs; `events` and `ends` are what was committed by it."""

    database: Database
    most_running: int = 2
    view: AgentView = field(default_factory=AgentView)
    events: list[Event] = field(default_factory=list)
    ends: list[TrainingJobRecord] = field(default_factory=list)
    on_end: Callable[[Connection, TrainingJobRecord], None] = lambda connection, record: None

    def __post_init__(self) -> None:
        self.lease = Lease(name="jobs", holder="one", ttl_seconds=5)
        with self.database.write() as connection:
            self.lease.acquire(connection, BEGAN)
        self._pass = JobPass(
            self.database,
            self.lease,
            ARNS,
            JobLimits(running=self.most_running, restarts=3, series=100),
            [self.ends_with, self._note_end],
        )

    def ends_with(self, connection: Connection, record: TrainingJobRecord) -> None:
        self.on_end(connection, record)

    def _note_end(self, _: Connection, record: TrainingJobRecord) -> None:
        self.ends.append(record)

    def insert(self, *records: TrainingJobRecord) -> None:
        with self.database.write() as connection:
            for record in records:
                training_jobs.insert(connection, record)

    def take(self, *reports: JobReport, now: float = BEGAN + 60, away: bool = False) -> Asks:
        self.view.look(None if away else {one.attempt_id: one for one in reports})
        asks = self._pass.run(self.view, now)
        self.view.forget_all_but(asks.newest)
        return asks

    def get(self, name: str = "job") -> TrainingJobRecord:
        with self.database.read() as connection:
            found = training_jobs.get(connection, name)
        assert found is not None
        return found

    def secondary(self, *names: str) -> list[str]:
        return [self.get(name).secondary.value for name in names]


@pytest.fixture
def passes(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    made = Passes(database)

    def note(connection: Connection, event: Event) -> None:
        made.events.append(event)

    monkeypatch.setattr(jobs_module, "put_event", note)
    return made
