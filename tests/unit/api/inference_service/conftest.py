"""The Async-Inference-Service as a whole, in memory: requests in, answers and rows out."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sagehen.api.inference_service.app import InferenceServices
from sagehen.api.inference_service.counts import Counts
from sagehen.api.inference_service.housekeeping import Housekeeping
from sagehen.api.inference_service.intake import Intake
from sagehen.api.inference_service.jobs import Jobs
from sagehen.api.inference_service.services import Services
from sagehen.api.inference_service.slots import Slots
from sagehen.api.own_site import OwnSite
from sagehen.api.request_body import BodyBudget
from sagehen.api.training.creation import create_training_job_row
from sagehen.domain.inference_service import ApiKeyRecord
from sagehen.domain.names import ArnMaker
from sagehen.domain.training import JobStatus, SecondaryStatus, TrainingJobRecord, Transition
from sagehen.objects.local import LocalObjectStore
from sagehen.settings.inference_service import InferenceServiceSettings
from sagehen.store import inference_services, training_jobs
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.store.topic_tables import NOTICES
from sagehen.wire.faults import AwsError
from support.clock import HandClock
from support.state import settings_of

COMMANDS = {"model-*": ["python3", "run.py"], "model_*": ["python3", "run.py"]}


class Answered:
    """What came back."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        self.data: bytes = messages[1]["body"]

    @property
    def body(self) -> Any:
        return json.loads(self.data)


class House:
    """One control's part in the service. Its training jobs end when a test says so."""

    def __init__(self, database: Database, home: Path, **service: Any) -> None:
        self.clock = HandClock(1_800_000_000.0)
        self.database = database
        self.writes = GroupedWrites(database)
        self.objects = LocalObjectStore(database, home / "objects", self.clock)
        own = {"s3_bucket": "bucket", "white_list": "model_a, model-b", "require_api_key": False}
        self.settings = settings_of(
            home,
            images=COMMANDS,
            smtp_host="localhost",
            inference_service=InferenceServiceSettings.model_validate({**own, **service}),
        )
        self.arns = ArnMaker("000000000000", "us-east-1")
        self.breaks: AwsError | None = None
        """What making a training job raises."""
        self.slots = Slots(self._make, self.clock)
        self.counts = Counts()
        stuff = (self.database, self.writes)
        self.services = Services(
            *stuff, self.objects, self.settings, self.slots, self._stop, self.clock
        )
        self.app = InferenceServices(
            database,
            Intake(*stuff, self.objects, self.settings, self.slots, self.clock),
            Jobs(*stuff, self.slots, self._stop),
            self.counts,
            OwnSite(),
            BodyBudget(2**28),
        )
        self.housekeeping = Housekeeping(self.slots, self.clock)
        self.services.begin()

    def _make(self, connection: Any, definition: Any, tags: Any, now: float) -> TrainingJobRecord:
        if self.breaks is not None:
            raise self.breaks
        return create_training_job_row(
            connection, definition, tags, settings=self.settings, arns=self.arns, now=now
        )

    def _stop(self, connection: Any, name: str, job_id: str) -> None:
        record = training_jobs.get_for_update(connection, name)
        if record is not None and record.job_id == job_id:
            stopping = msgspec.structs.replace(record, status=JobStatus.STOPPING)
            training_jobs.update(connection, stopping)

    async def ask(
        self,
        method: str = "POST",
        path: str = "/dev/inference",
        body: bytes | dict[str, Any] = b"",
        query: str = "",
        **headers: str,
    ) -> Answered | None:
        """None where the service leaves the request alone. Names of headers with `_` for `-`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = [
            (name.replace("_", "-").encode(), value.encode("latin-1"))
            for name, value in headers.items()
        ]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": fields,
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        taken = await self.app.answers(scope, receive, send)
        return Answered(sent) if taken else None

    def post(self, body: bytes | dict[str, Any], **headers: str) -> Answered:
        answered = asyncio.run(self.ask(body=body, **headers))
        assert answered is not None
        return answered

    def request(self, method: str, path: str, query: str = "", **headers: str) -> Answered:
        answered = asyncio.run(self.ask(method, path, query=query, **headers))
        assert answered is not None
        return answered

    def start(self, kind: str = "model_a", **more: Any) -> str:
        """Have a job accepted; its name."""
        self.clock.seconds += 1
        answered = self.post({"type": kind, **more})
        assert answered.status in (200, 202), answered.body
        return str(self.newest())

    def newest(self) -> str:
        return str(self.request("GET", "/dev/inference").body["jobs"][0]["jobName"])

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.request("GET", f"/dev/inference/{name}").body)

    def training(self, name: str) -> TrainingJobRecord | None:
        with self.database.read() as connection:
            return training_jobs.get(connection, name)

    def end(
        self,
        name: str,
        status: JobStatus = JobStatus.COMPLETED,
        secondary: SecondaryStatus | None = None,
        **changes: Any,
    ) -> None:
        """End a training job, and all that goes with it, in one transaction, as the loop does."""
        now = self.clock.now()
        final = SecondaryStatus(str(status)) if secondary is None else secondary
        with self.database.write() as connection:
            record = training_jobs.get_for_update(connection, name)
            assert record is not None
            ended = msgspec.structs.replace(
                record,
                status=status,
                ended_at=now,
                transitions=(*record.transitions, Transition(status=final, started_at=now)),
                **{"artifacts": ("model.tar.gz", "output.tar.gz"), **changes},
            )
            training_jobs.update(connection, ended)
            self.slots.on_end(connection, ended)

    def foreign(self, name: str) -> None:
        """A training job that no service made."""
        definition = {
            "TrainingJobName": name,
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/elsewhere"},
        }
        with self.database.write() as connection:
            self._make(connection, definition, {}, self.clock.now())

    def key(self, name: str) -> str:
        """Make an API key."""
        key = f"key-of-{name}"
        digest = hashlib.sha256(key.encode()).hexdigest()
        record = ApiKeyRecord(name=name, key_sha256=digest, created_at=1.0)
        with self.database.write() as connection:
            assert inference_services.add_key(connection, record)
        return key

    def notices(self) -> list[dict[str, Any]]:
        """What was published to somebody, as kept for delivery."""
        with self.database.read() as connection:
            rows = connection.execute(NOTICES.select().order_by(NOTICES.c.notice_id))
            return [json.loads(row.content) for row in rows]

    def facts(self) -> list[dict[str, Any]]:
        """What programs are told, of each notice."""
        return [json.loads(json.loads(one["message"])["default"]) for one in self.notices()]


@pytest.fixture
def state(database: Database) -> Database:
    """SQLite; what the database has a say in is tested with each kind."""
    return database


@pytest.fixture
def make_house(state: Database, tmp_path: Path) -> Callable[..., House]:
    """`make_house(limit=2)`: with these settings of the service besides the usual ones."""

    def make(**service: Any) -> House:
        service.setdefault("emails", "who@example.com")
        return House(state, tmp_path, **service)

    return make


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()
