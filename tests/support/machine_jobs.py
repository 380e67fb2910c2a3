"""Jobs that run one after the other on a cluster whose nodes die; each is looked at in the end."""

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from support.deploy import ROLE, Deployer
from support.killed_machines import Machines, persistently
from support.transform_kills import outputs, start

__all__ = ["FINAL", "JobEvents", "TrainingJobs", "TransformJobs"]

FINAL = ("Completed", "Failed", "Stopped")
SECONDS = 600
"""for one job, whatever is killed"""
STEPS = 120
COUNTING = f"""
import json, pathlib, time

folder = pathlib.Path("/opt/ml/checkpoints")
kept, starts = folder / "step", folder / "starts"
step = int(kept.read_text()) if kept.exists() else 0
with starts.open("a") as file:
    file.write(str(step) + "\\n")
while step < {STEPS}:
    time.sleep(0.25)
    step += 1
    draft = folder / "step.new"
    draft.write_text(str(step))
    draft.replace(kept)
pathlib.Path("/opt/ml/model/steps").write_text(str(step))
"""


class _OneAfterTheOther(threading.Thread, ABC):
    """Starts a job when the last one has ended, until the `with` block ends."""

    kind = ""

    def __init__(self, machines: Machines) -> None:
        super().__init__()
        self._deployer = Deployer(machines)
        self._ending = threading.Event()
        self.wrong: list[str] = []
        self.names: list[str] = []
        self.restarted = 0
        """jobs that were interrupted at least once"""
        self._failure: BaseException | None = None

    def __enter__(self) -> "_OneAfterTheOther":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                name = f"{self.kind}-{len(self.names)}"
                self.names.append(name)
                self._begin(name)
                self._await_end(name)
                self._check(name)
        except BaseException as error:
            self._failure = error

    def _begin(self, name: str) -> None:
        def create() -> None:
            try:
                self._create(name)
            except ClientError as error:
                # An answer was lost, and the job is there.
                if error.response["Error"]["Code"] not in (
                    "ResourceInUse",
                    "ResourceInUseException",
                ):
                    raise

        persistently(create)

    def _await_end(self, name: str) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                if self._status(name) in FINAL:
                    return
            except (ClientError, BotoCoreError):
                pass
            self._ending.wait(0.5) or time.sleep(0.2)
        self.wrong.append(f"{name} has not ended within {SECONDS} s")

    @abstractmethod
    def _create(self, name: str) -> None: ...

    @abstractmethod
    def _status(self, name: str) -> str: ...

    @abstractmethod
    def _check(self, name: str) -> None: ...


class TransformJobs(_OneAfterTheOther):
    """Jobs over the inputs of `support.transform_kills.prepare`."""

    kind = "transform"

    def __init__(self, machines: Machines, expected: dict[str, bytes]) -> None:
        super().__init__(machines)
        self._expected = expected
        self.identical = 0

    def _create(self, name: str) -> None:
        start(self._deployer, name)

    def _status(self, name: str) -> str:
        answer = self._deployer.sagemaker.describe_transform_job(TransformJobName=name)
        return str(answer["TransformJobStatus"])

    def _check(self, name: str) -> None:
        describe = self._deployer.sagemaker.describe_transform_job
        described = persistently(lambda: describe(TransformJobName=name))
        if described["TransformJobStatus"] != "Completed":
            self.wrong.append(f"{name}: {described}")
            return
        found = persistently(lambda: outputs(self._deployer, name))
        if found == self._expected:
            self.identical += 1
        else:
            keys = found.keys() ^ self._expected.keys()
            differ = [
                key
                for key in found.keys() & self._expected.keys()
                if found[key] != self._expected[key]
            ]
            self.wrong.append(f"{name} has other outputs: keys {sorted(keys)}, contents {differ}")


class TrainingJobs(_OneAfterTheOther):
    """Jobs that count, and keep the count as their checkpoint."""

    kind = "training"

    def __init__(self, machines: Machines, folder: Path) -> None:
        super().__init__(machines)
        self._program = folder / "count.py"
        self._program.write_text(COUNTING)
        persistently(lambda: self._deployer.s3.create_bucket(Bucket="jobs"))
        self.resumed = 0
        """attempts that went on from a checkpoint"""

    def _create(self, name: str) -> None:
        self._deployer.sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "none",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": [sys.executable, str(self._program)],
            },
            RoleArn=ROLE,
            OutputDataConfig={"S3OutputPath": "s3://jobs/out"},
            CheckpointConfig={"S3Uri": f"s3://jobs/checkpoints/{name}"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
        )

    def _status(self, name: str) -> str:
        answer = self._deployer.sagemaker.describe_training_job(TrainingJobName=name)
        return str(answer["TrainingJobStatus"])

    def _check(self, name: str) -> None:
        s3, describe = self._deployer.s3, self._deployer.sagemaker.describe_training_job
        described = persistently(lambda: describe(TrainingJobName=name))
        if described["TrainingJobStatus"] != "Completed":
            self.wrong.append(f"{name}: {described}")
            return
        seen = [each["Status"] for each in described["SecondaryStatusTransitions"]]
        self.restarted += "Restarting" in seen

        def read(key: str) -> str:
            return persistently(
                lambda: s3.get_object(Bucket="jobs", Key=f"checkpoints/{name}/{key}")["Body"].read()
            ).decode()

        starts = [int(line) for line in read("starts").split()]
        if int(read("step")) != STEPS or starts != sorted(starts):
            self.wrong.append(f"{name}: {read('step')} steps, begun at {starts}")
        self.resumed += sum(start > 0 for start in starts)


class JobEvents:
    """The events of jobs: how often the end of each was told."""

    def __init__(self, deployer: Deployer) -> None:
        client = deployer.server.client
        self._sqs = client("sqs", read_timeout=60)
        self._url = self._sqs.create_queue(QueueName="events")["QueueUrl"]
        pattern = {
            "source": ["aws.sagemaker"],
            "detail-type": [
                "SageMaker Training Job State Change",
                "SageMaker Transform Job State Change",
            ],
        }
        client("events").put_rule(Name="jobs", EventPattern=json.dumps(pattern))
        arn = "arn:aws:sqs:us-east-1:000000000000:events"
        client("events").put_targets(Rule="jobs", Targets=[{"Id": "q", "Arn": arn}])

    def ends(self, enough: Callable[[Counter[str]], bool]) -> Counter[str]:
        """How often the completion of each job was told, once it is enough and nothing follows."""
        found: dict[str, Any] = {}
        quiet_since, deadline = time.monotonic(), time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                got = self._sqs.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=1
                ).get("Messages", [])
            except (ClientError, BotoCoreError):
                continue
            for message in got:
                found[message["MessageId"]] = json.loads(message["Body"])
                quiet_since = time.monotonic()
            told = Counter(filter(None, map(_completed, found.values())))
            if not got and enough(told) and time.monotonic() - quiet_since > 3:
                break
        return told


def _completed(event: dict[str, Any]) -> str:
    detail = event["detail"]
    for kind in ("Training", "Transform"):
        if detail.get(f"{kind}JobStatus") == "Completed":
            return str(detail[f"{kind}JobName"])
    return ""
