"""Training jobs as tests need them: a record, an attempt's report, an agent in memory."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.job_specs import (
    JobList,
    JobOutcome,
    JobPhase,
    JobReport,
    JobSpec,
    PhaseChange,
    StopRequest,
)
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.training.records import (
    SecondaryStatus,
    TrainingJobRecord,
    Transition,
)

BEGAN = 1000.0
"""When every job of `waiting_job` was created."""


def waiting_job(name: str = "job", **changes: Any) -> TrainingJobRecord:
    """A job that was just created; `changes` are of the record, or of its definition."""
    definition = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": "model-a", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::000000000000:role/Sagehen",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 100},
    }
    definition |= {key: value for key, value in changes.items() if key[0].isupper()}
    record = TrainingJobRecord(
        name=name,
        arn=f"arn:aws:sagemaker:us-east-1:000000000000:training-job/{name}",
        created_at=BEGAN,
        modified_at=BEGAN,
        definition=definition,
        job_id=f"id{name}",
        transitions=(Transition(status=SecondaryStatus.STARTING, started_at=BEGAN),),
    )
    own = {key: value for key, value in changes.items() if not key[0].isupper()}
    return msgspec.structs.replace(record, **own)


def running_job(name: str = "job", **changes: Any) -> TrainingJobRecord:
    """The same, with a first attempt on its way to the agent."""
    return waiting_job(name, **{"stage": JobStage.ACTIVE, "attempt": 1, **changes})


def spot(seconds: int = 200) -> dict[str, Any]:
    """The members of a spot job that may wait and run for so long."""
    stopping = {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": seconds}
    return {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": stopping,
        "gives_up_at": BEGAN + seconds,
    }


PHASES = (JobPhase.STARTING, JobPhase.DOWNLOADING, JobPhase.TRAINING, JobPhase.UPLOADING)


def report_of(
    attempt_id: str,
    phases: int,
    outcome: JobOutcome | None = None,
    began: float = BEGAN,
    step: float = 10,
    **members: Any,
) -> JobReport:
    """An attempt that went through so many phases, each `step` seconds after the one before, and
    ended one after the last."""
    changes = [
        PhaseChange(phase=phase, at=began + step * (number + 1))
        for number, phase in enumerate(PHASES[:phases])
    ]
    ran = step if phases > 3 else 0.0
    ended = {"ended_at": began + step * (phases + 1), "running_seconds": ran} if outcome else {}
    return JobReport(
        attempt_id=attempt_id, phases=tuple(changes), outcome=outcome, **{**ended, **members}
    )


class JobAgent:
    """Has the agent's methods for jobs; its attempts do what the test says."""

    def __init__(self) -> None:
        self.reports: dict[str, JobReport] = {}
        self.specs: dict[str, JobSpec] = {}
        self.asked: list[tuple[str, str]] = []
        self.version = 1
        self.away = False
        self.refuses: str | None = None
        self.before_answer: Callable[[str, str], None] = lambda verb, attempt_id: None
        self._changed = asyncio.Event()

    async def jobs(self, since: int | None = None, wait_seconds: float = 0) -> JobList:
        self._check()
        while since == self.version and wait_seconds:
            self._changed.clear()
            await self._changed.wait()
            self._check()
        return JobList(version=self.version, jobs=tuple(self.reports.values()))

    async def put_job(self, spec: JobSpec) -> None:
        self._take("put", spec.attempt_id)
        if self.refuses is not None:
            raise Invalid(self.refuses)
        self.specs[spec.attempt_id] = spec
        self.show(self.reports.get(spec.attempt_id) or report_of(spec.attempt_id, 1))

    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None:
        self._take("stop", attempt_id)
        if attempt_id not in self.reports:
            raise NotFound(attempt_id)
        outcome = (request or StopRequest()).outcome
        self.asked[-1] = (outcome.value, attempt_id)
        self.show(msgspec.structs.replace(self.reports[attempt_id], stopping=True))

    async def delete_job(self, attempt_id: str) -> None:
        self._take("delete", attempt_id)
        self.reports.pop(attempt_id, None)
        self.change()

    def show(self, *reports: JobReport) -> None:
        """Tell of attempts from now on."""
        self.reports |= {one.attempt_id: one for one in reports}
        self.change()

    def change(self) -> None:
        self.version += 1
        self._changed.set()

    def leave(self) -> None:
        """Die, with all that runs; what has ended is told of again by the next agent."""
        self.away = True
        self.reports = {key: one for key, one in self.reports.items() if one.outcome}
        self.change()

    def come_back(self) -> None:
        self.away = False
        self.version += 1000

    def asked_for(self, verbs: Iterable[str]) -> list[tuple[str, str]]:
        return [one for one in self.asked if one[0] in verbs]

    def _take(self, verb: str, attempt_id: str) -> None:
        self._check()
        self.asked.append((verb, attempt_id))
        self.before_answer(verb, attempt_id)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("The agent is away.")
