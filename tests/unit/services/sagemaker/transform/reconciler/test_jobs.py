"""Passes over the transform jobs of a state."""

import pytest

from sagehen.frame.arns import ArnMaker
from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.reconciler import jobs as jobs_module
from sagehen.services.sagemaker.transform.reconciler.jobs import TransformPass
from sagehen.services.sagemaker.transform.reconciler.plan import RunnerFacts, instance_ids
from sagehen.services.sagemaker.transform.runner_messages import RunnerEnded
from sagehen.services.sagemaker.transform.status import request_stop
from sagehen.state import leases
from sagehen.state.leases import Lease, LeaseLost
from support.state import settings_of
from support.transform_jobs import (
    BEGAN,
    active_transform,
    done,
    reports_of,
    waiting_transform,
)

NOW = BEGAN + 60
SERVES = InstanceState.IN_SERVICE


class Passes:
    """`take(reports)` is a pass; `events` are those it has committed."""

    def __init__(self, database, settings):
        self.database = database
        self.events = []
        lease = Lease(name="transform-jobs", holder="one", ttl_seconds=5)
        with database.write() as connection:
            lease.acquire(connection, BEGAN)
        self.pass_ = TransformPass(database, lease, ArnMaker("000000000000", "us-east-1"), settings)

    def insert(self, *records):
        with self.database.write() as connection:
            for record in records:
                transform_jobs.insert(connection, record)

    def take(self, reports=None, runners=None, away=False, now=NOW):
        return self.pass_.run(None if away else (reports or {}), runners or {}, now)

    def get(self, name="job"):
        with self.database.read() as connection:
            return transform_jobs.get(connection, name)

    def progress(self, name="job"):
        with self.database.read() as connection:
            return transform_jobs.progress_of(connection, [f"id{name}"])[f"id{name}"]


@pytest.fixture
def passes(database, home, monkeypatch):
    settings = settings_of(home.path).model_copy(update={"max_running_transform_jobs": 2})
    made = Passes(database, settings)
    monkeypatch.setattr(jobs_module, "put_event", lambda _, event: made.events.append(event))
    return made


def waiting(count):
    return [
        waiting_transform(f"j{n}", created_at=BEGAN + n, modified_at=BEGAN + n)
        for n in range(count)
    ]


def test_the_oldest_are_begun_as_many_as_may_run(passes):
    passes.insert(*reversed(waiting(3)))
    requests = passes.take()
    assert [spec.endpoint_name for spec in requests.start] == ["j0", "j1"]
    stages = [passes.get(f"j{n}").stage for n in range(3)]
    assert stages == [JobStage.ACTIVE, JobStage.ACTIVE, JobStage.WAITING]
    assert passes.events == []


def test_none_is_begun_while_there_is_no_agent(passes):
    passes.insert(waiting_transform())
    assert passes.take(away=True).start == ()
    assert passes.get().stage is JobStage.WAITING


def test_where_one_ends_its_instances_stop_and_the_next_begins(passes):
    passes.insert(*waiting(3))
    passes.take()
    job = passes.get("j0")
    reports = reports_of(job, SERVES)
    requests = passes.take(reports, {"idj0": RunnerFacts(messages=(RunnerEnded(),))})
    assert passes.get("j0").status is JobStatus.COMPLETED
    assert requests.stop == tuple(instance_ids(job))
    assert [event.detail["TransformJobStatus"] for event in passes.events] == ["Completed"]
    requests = passes.take(reports_of(job, InstanceState.STOPPING))
    assert [spec.endpoint_name for spec in requests.start] == ["j1", "j2"]
    assert requests.stop == ()


def test_progress_is_written_and_a_job_without_news_is_not(passes, monkeypatch):
    passes.insert(active_transform(started_at=BEGAN))
    reports = reports_of(passes.get(), SERVES)
    runner = RunnerFacts(is_running=True, messages=(done("a", through="a", records=3),))
    passes.take(reports, {"idjob": runner})
    assert (passes.progress().done_through, passes.progress().done_records) == ("a", 3)
    monkeypatch.setattr(passes.database, "write", None)  # nothing is written
    passes.take(reports, {"idjob": RunnerFacts(is_running=True)})


def test_an_instance_of_no_job_is_stopped(passes):
    passes.insert(waiting_transform("gone", stage=JobStage.ENDED))
    requests = passes.take(reports_of(passes.get("gone"), SERVES))
    assert requests.stop == tuple(instance_ids(passes.get("gone")))
    assert not requests.settled


def test_a_job_that_waits_is_stopped_also_without_an_agent(passes):
    passes.insert(request_stop(waiting_transform(), BEGAN + 1))
    passes.take(away=True)
    assert passes.get().status is JobStatus.STOPPED
    assert [event.detail["TransformJobStatus"] for event in passes.events] == ["Stopped"]


def test_a_server_without_jobs_is_settled(passes):
    assert passes.take().settled
    assert not passes.take(away=True).settled
    passes.insert(active_transform())
    assert not passes.take().settled


def test_whoever_has_lost_the_lease_writes_nothing(passes):
    passes.insert(active_transform())
    with passes.database.write() as connection:
        leases.acquire(connection, "transform-jobs", "two", NOW + 10, 5)
    with pytest.raises(LeaseLost):
        passes.take(reports_of(passes.get(), SERVES), now=NOW + 11)
    assert passes.get().started_at is None
