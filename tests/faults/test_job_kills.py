"""kill -9 of control and of the agent at every step of a training job's life.

Whatever dies where, the job ends as it should; each of its statuses is told once, and its end
to the inference service that made it.
"""

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from sagehen.base.clock import SYSTEM
from sagehen.base.credentials import make_credentials, make_token
from sagehen.base.home import prepare_home
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import job_store as inference_jobs
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.messaging.events import (
    rule_store as event_rules,
)
from sagehen.services.messaging.events import (
    target_store as event_targets,
)
from sagehen.services.messaging.events.records import ENABLED, RuleRecord, TargetRecord
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.message_store import MESSAGES
from sagehen.services.messaging.sqs.records import QueueRecord
from sagehen.services.s3.storage import open_object_store
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.creation import create_training_job_row
from sagehen.services.sagemaker.training.operations import stop_training_job_row
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.state.database import Database
from sagehen.state.migrate import upgrade
from support.crashing import CRASHES, Crash, Roles
from support.server import eventually

ARNS = ArnMaker("000000000000", "us-east-1")
TOPIC = ARNS.sns("told")
COMPLETED = ["Starting", "Downloading", "Training", "Uploading", "Completed"]
MOST_STEPS = 30
"""Of a life; what takes more is not one that ends."""


class House:
    """A home without a server: jobs are put into its state, and its roles are run by the test."""

    def __init__(self, path: Path) -> None:
        self.home = prepare_home(path)
        make_credentials(self.home.credentials)
        make_token(self.home.token)
        self.settings = Settings(home=path)
        upgrade(self.settings.state_url)
        self.database = Database(self.settings.state_url)
        self.roles = Roles(path)
        objects = open_object_store(self.settings, self.home, self.database, SYSTEM)
        objects.create_bucket("bucket")
        with self.database.write() as connection:
            _have_all_told(connection)

    def create(self, name: str, command: str) -> None:
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
            "StoppingCondition": {"MaxRuntimeInSeconds": 1000},
        }
        with self.database.write() as connection:
            record = create_training_job_row(
                connection, params, {}, settings=self.settings, arns=ARNS, now=time.time()
            )
            inference_jobs.add(connection, _of_a_service(record))

    def get(self, name: str) -> TrainingJobRecord:
        with self.database.read() as connection:
            found = training_jobs.get(connection, name)
        assert found is not None
        return found

    def statuses(self, name: str) -> list[str]:
        return [one.status.value for one in self.get(name).transitions]

    def told(self, name: str) -> list[str]:
        """The secondary statuses of its events, in the order in which they were sent."""
        details = [one["detail"] for one in self._messages("events")]
        return [one["SecondaryStatus"] for one in details if one["TrainingJobName"] == name]

    def notices(self, name: str) -> list[str]:
        """The final statuses that its inference service was told."""
        told = self._messages("notices")
        return [one["secondaryStatus"] for one in told if one["jobName"] == name]

    def _messages(self, queue: str) -> list[dict[str, Any]]:
        mine = select(MESSAGES.c.body).where(MESSAGES.c.queue_id == queue)
        with self.database.read() as connection:
            bodies = connection.scalars(mine.order_by(MESSAGES.c.sequence)).all()
        return [json.loads(body) for body in bodies]

    def wait_for_end(self, name: str, process: BaseProcess) -> bool:
        """Until a job has ended and the agent was told to forget it, or the process has died; then
        False."""

        def holds() -> bool:
            over = self.get(name).status.is_final and not any(self.home.ended_jobs.iterdir())
            return over or not process.is_alive()

        eventually(holds)
        return process.is_alive()

    def wait_for_training(self, name: str) -> None:
        eventually(lambda: self.get(name).secondary is SecondaryStatus.TRAINING)

    def stop(self, name: str) -> None:
        with self.database.write() as connection:
            record = training_jobs.get_for_update(connection, name)
            assert record is not None
            stop_training_job_row(connection, record, ARNS, time.time())


def _have_all_told(connection: Connection) -> None:
    """Events go into the queue `events`, an inference service's notices into `notices`."""
    for name in ("events", "notices"):
        queue = {"name": name, "queue_id": name, "created_at": 0, "modified_at": 0}
        queues.insert(connection, QueueRecord(**queue, attributes={}))
    pattern = json.dumps({"source": ["aws.sagemaker"]})
    rule = {"name": "told", "arn": "arn:aws:events:us-east-1:000000000000:rule/told"}
    event_rules.put(
        connection, RuleRecord(**rule, state=ENABLED, event_pattern=pattern, created_at=0)
    )
    target = {"rule_name": "told", "target_id": "queue", "target_arn": ARNS.sqs("events")}
    event_targets.put(connection, TargetRecord(**target, definition={}))
    topics.insert(connection, TopicRecord(arn=TOPIC, created_at=0, attributes={}))
    subscription = {
        "arn": f"{TOPIC}:queue",
        "topic_arn": TOPIC,
        "protocol": "sqs",
        "endpoint": ARNS.sqs("notices"),
        "attributes": {"RawMessageDelivery": "true"},
    }
    subscriptions.insert(
        connection,
        SubscriptionRecord(
            **subscription,
            state=SubscriptionState.CONFIRMED,
            created_at=0,
            token="",
            token_expires_at=0,
        ),
    )


def _of_a_service(record: TrainingJobRecord) -> InferenceJobRecord:
    """What an inference service keeps of a training job that it made."""
    return InferenceJobRecord(
        job_name=record.name,
        stage="gone",
        type="model-a",
        state=InferenceState.ACTIVE,
        topic_arn=TOPIC,
        definition=record.definition,
        created_at=record.created_at,
        job_id=record.job_id,
    )


@contextmanager
def new_house() -> Iterator[House]:
    path = Path(tempfile.mkdtemp(prefix="sgh-"))
    house = House(path / "home")
    yield house
    house.roles.close()
    house.database.close()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with new_house() as house:
        yield house


@pytest.fixture(scope="module")
def agent(house):
    with house.roles.run("agent") as agent:
        yield agent


def lives(house: House, role: str, what: str, command: str, stop: bool = False) -> Iterator[str]:
    """The names of jobs that have ended, although the role was killed at the first step, the
    second, and so on, until one has none left to be killed at. Who sees one to its end is killed
    at the next one's step. With `stop`, a job is told to stop when its code runs, and the steps are
    those from there on."""
    crash = Crash(what)
    process = house.roles.start(role, crash)
    try:
        for number in itertools.count(1):
            assert number < MOST_STEPS
            name = f"{'stopped' if stop else 'whole'}-{what}-{number}"
            if stop:
                house.create(name, command)
                house.wait_for_training(name)
                crash.arm(number)
                house.stop(name)
            else:
                crash.arm(number)
                house.create(name, command)
            survived = house.wait_for_end(name, process)
            if not survived:
                house.roles.kill(process)
                crash = Crash(what)
                process = house.roles.start(role, crash)
                assert house.wait_for_end(name, process)
            yield name
            if survived:
                assert number > 1, "There was no step to be killed at."
                return
    finally:
        house.roles.kill(process)


@pytest.mark.parametrize("what", CRASHES)
def test_control_is_killed_at_every_step_of_a_job_that_completes(house, agent, what):
    for name in lives(house, "control", what, "true"):
        assert house.statuses(name) == COMPLETED
        assert house.told(name) == COMPLETED
        assert house.notices(name) == ["Completed"]
        assert house.get(name).attempt == 1


@pytest.mark.parametrize("what", CRASHES)
def test_control_is_killed_at_every_step_of_a_job_that_is_stopped(house, agent, what):
    for name in lives(house, "control", what, "exec sleep 1000", stop=True):
        assert house.statuses(name) == [*COMPLETED[:3], "Stopping", "Uploading", "Stopped"]
        assert house.told(name) == house.statuses(name)
        assert house.notices(name) == ["Stopped"]


def test_the_agent_is_killed_in_each_phase():
    names = []
    # In a home of its own: that of the others has an agent, which control would give the job to.
    with new_house() as house, house.roles.run("control"):
        for name in lives(house, "agent", "phase", "true"):
            names.append(name)
            statuses = house.statuses(name)
            assert statuses[-1] == "Completed"
            assert house.told(name) == statuses
            assert house.notices(name) == ["Completed"]
    # Starting, Downloading, Training, Uploading.
    assert len(names) == 5
    assert statuses == COMPLETED
