"""kill -9 of control and of the agent at every step of a training job's life.

Whatever dies where, the job ends as it should, and each of its statuses is told once.
"""

import itertools
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from sqlalchemy import select

from sagehen.api.training.creation import create_training_job_row
from sagehen.clock import SYSTEM
from sagehen.config import Settings
from sagehen.credentials import make_credentials
from sagehen.domain.events import ENABLED, RuleRecord, TargetRecord
from sagehen.domain.names import ArnMaker
from sagehen.domain.queues import QueueRecord
from sagehen.domain.training import TrainingJobRecord
from sagehen.home import prepare_home
from sagehen.objects import open_object_store
from sagehen.store import event_rules, event_targets, queues, training_jobs
from sagehen.store.database import Database
from sagehen.store.messages import MESSAGES
from sagehen.store.migrate import upgrade
from support.crashing import CRASHES, Crash, Roles
from support.server import eventually

QUEUE = "arn:aws:sqs:us-east-1:000000000000:told"
ARNS = ArnMaker("000000000000", "us-east-1")
COMPLETED = ["Starting", "Downloading", "Training", "Uploading", "Completed"]
MOST_STEPS = 30
"""Of a life; what takes more is not one that ends."""


class House:
    """A home without a server: jobs are put into its state, and its roles are run by the test."""

    def __init__(self, path: Path) -> None:
        self.home = prepare_home(path)
        make_credentials(self.home.credentials)
        self.settings = Settings(home=path)
        upgrade(self.settings.state_url)
        self.database = Database(self.settings.state_url)
        self.roles = Roles(path)
        objects = open_object_store(self.settings, self.home, self.database, SYSTEM)
        objects.create_bucket("bucket")
        with self.database.write() as connection:
            pattern = json.dumps({"source": ["aws.sagemaker"]})
            arn = "arn:aws:events:us-east-1:000000000000:rule/told"
            event_rules.put(
                connection,
                RuleRecord(
                    name="told", arn=arn, state=ENABLED, event_pattern=pattern, created_at=0
                ),
            )
            target = {"Id": "queue", "Arn": QUEUE}
            event_targets.put(
                connection,
                TargetRecord(
                    rule_name="told", target_id="queue", target_arn=QUEUE, definition=target
                ),
            )
            queues.insert(
                connection,
                QueueRecord(
                    name="told", queue_id="told", created_at=0, modified_at=0, attributes={}
                ),
            )

    def create(self, name: str, command: str, **members: object) -> None:
        params = {
            "TrainingJobName": name,
            "AlgorithmSpecification": {
                "TrainingImage": "model-a",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c", command],
            },
            "RoleArn": "arn:aws:iam::000000000000:role/Sagehen",
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            **members,
        }
        with self.database.write() as connection:
            create_training_job_row(
                connection, params, {}, settings=self.settings, arns=ARNS, now=time.time()
            )

    def get(self, name: str) -> TrainingJobRecord:
        with self.database.read() as connection:
            found = training_jobs.get(connection, name)
        assert found is not None
        return found

    def has_ended(self, name: str) -> bool:
        return self.get(name).status.is_final

    def statuses(self, name: str) -> list[str]:
        return [one.status.value for one in self.get(name).transitions]

    def told(self, name: str) -> list[str]:
        """The secondary statuses of its events, in the order in which they were sent."""
        with self.database.read() as connection:
            bodies = connection.execute(select(MESSAGES.c.body).order_by(MESSAGES.c.sequence))
            details = [json.loads(row.body)["detail"] for row in bodies]
        return [one["SecondaryStatus"] for one in details if one["TrainingJobName"] == name]

    def wait_for_end(self, name: str, process: BaseProcess | None = None) -> bool:
        """Until a job has ended and the agent was told to forget it, or the process has died; then
        False."""

        def holds() -> bool:
            over = self.has_ended(name) and not any(self.home.ended_jobs.iterdir())
            return over or (process is not None and not process.is_alive())

        eventually(holds)
        return process is None or process.is_alive()


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    path = Path(tempfile.mkdtemp(prefix="sgh-"))
    house = House(path / "home")
    yield house
    house.roles.close()
    house.database.close()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def agent(house):
    with house.roles.run("agent") as agent:
        yield agent


def lives(house: House, what: str, stem: str, **job: object) -> Iterator[str]:
    """The names of jobs that have ended, although control was killed at the first step, the
    second, and so on, until one has none left to be killed at."""
    for number in itertools.count(1):
        assert number < MOST_STEPS
        name = f"{stem}-{what}-{number}"
        house.create(name, **job)
        with house.roles.run("control", Crash(what, number)) as control:
            survived = house.wait_for_end(name, control)
        if survived:
            assert number > 1, "There was no step to be killed at."
            yield name
            return
        with house.roles.run("control"):
            house.wait_for_end(name)
        yield name


@pytest.mark.parametrize("what", CRASHES)
def test_control_is_killed_at_every_step_of_a_job_that_completes(house, agent, what):
    for name in lives(house, what, "whole", command="true"):
        assert house.statuses(name) == COMPLETED
        assert house.told(name) == COMPLETED
        assert house.get(name).attempt == 1


@pytest.mark.parametrize("what", CRASHES)
def test_control_is_killed_at_every_step_of_a_job_that_is_stopped(house, agent, what):
    condition = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
    job = {"EnableManagedSpotTraining": True, "StoppingCondition": condition}
    for name in lives(house, what, "stopped", command="exec sleep 60", **job):
        statuses = house.statuses(name)
        assert statuses[-1] in ("MaxWaitTimeExceeded", "MaxRuntimeExceeded")
        assert Counter(statuses)["Stopping"] == 1
        assert house.told(name) == statuses


def test_the_agent_is_killed_in_each_phase(house):
    with house.roles.run("control"):
        for number in itertools.count(1):
            assert number < MOST_STEPS
            name = f"agent-{number}"
            house.create(name, "true")
            with house.roles.run("agent", Crash("phase", number)) as agent:
                survived = house.wait_for_end(name, agent)
            if survived:
                break
            with house.roles.run("agent"):
                house.wait_for_end(name)
            statuses = house.statuses(name)
            assert statuses[-1] == "Completed"
            assert house.told(name) == statuses
        # Starting, Downloading, Training, Uploading.
        assert number == 5
        assert house.statuses(name) == COMPLETED
