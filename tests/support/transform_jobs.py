"""Transform jobs as tests need them: a request, a record, a runner in memory."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sagehen.frame.container_relay import RelayNodes
from sagehen.frame.container_specs import (
    ContainerSpec,
    InstanceOwner,
    InstanceReport,
    InstanceState,
)
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord
from sagehen.services.sagemaker.transform.progress import RunnerMessage
from sagehen.services.sagemaker.transform.reconciler.plan import instance_ids
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    InstanceAddress,
    RunnerSpec,
    S3Access,
)

BEGAN = 1000.0
"""When every job of `waiting_transform` was created."""
S3 = S3Access(address="unix:/s3", access_key="a", secret_key="s", region="us-east-1")


def transform_request(name: str = "job", **members: Any) -> dict[str, Any]:
    """CreateTransformJob's parameters; None leaves a member out."""
    params = {
        "TransformJobName": name,
        "ModelName": "m",
        "TransformInput": transform_input(),
        "TransformOutput": {"S3OutputPath": "s3://bucket/out"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        **members,
    }
    return {member: value for member, value in params.items() if value is not None}


def transform_input(
    uri: str = "s3://bucket/many/", kind: str = "S3Prefix", **members: Any
) -> dict[str, Any]:
    return {"DataSource": {"S3DataSource": {"S3DataType": kind, "S3Uri": uri}}, **members}


def waiting_transform(name: str = "job", instances: int = 1, **changes: Any) -> TransformJobRecord:
    """A job that was just created; `changes` are of the record, or of its definition."""
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": instances}
    definition = transform_request(name, TransformResources=resources)
    definition |= {key: value for key, value in changes.items() if key[0].isupper()}
    record = TransformJobRecord(
        name=name,
        arn=f"arn:aws:sagemaker:us-east-1:000000000000:transform-job/{name}",
        created_at=BEGAN,
        modified_at=BEGAN,
        definition=definition,
        job_id=f"id{name}",
        containers=(ContainerSpec(hostname="primary", image="python"),),
    )
    own = {key: value for key, value in changes.items() if not key[0].isupper()}
    return msgspec.structs.replace(record, **own)


def active_transform(name: str = "job", instances: int = 1, **changes: Any) -> TransformJobRecord:
    return waiting_transform(name, instances, **{"stage": JobStage.ACTIVE, **changes})


def reports_of(
    job: TransformJobRecord, *states: InstanceState | None, reason: str | None = None
) -> dict[str, InstanceReport]:
    """Reports of the job's instances, in these states; None for one that the agent has not."""
    return {
        instance_id: InstanceReport(
            instance_id=instance_id,
            state=state,
            address=f"link:/{number}" if state is InstanceState.IN_SERVICE else None,
            failure_reason=reason if state is InstanceState.FAILED else None,
            owner=InstanceOwner.TRANSFORM_JOB,
        )
        for number, (instance_id, state) in enumerate(zip(instance_ids(job), states, strict=False))
        if state is not None
    }


def done(*keys: str, through: str | None = None, records: int = 1) -> Done:
    return Done(keys=keys, records=records, input_bytes=10, through=through)


class MemoryRunner:
    """Has the methods of a runner process; it does what the test says."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.on_change = on_change
        self.messages: list[RunnerMessage] = []
        self.has_exited = self.stopping = self.killed = False
        self.spec: RunnerSpec | None = None
        self.instances: tuple[InstanceAddress, ...] = ()
        self.nodes: RelayNodes | None = None

    @property
    def has_job(self) -> bool:
        return self.spec is not None

    async def start(self, command: Sequence[str]) -> None: ...

    def begin(self, spec: RunnerSpec) -> None:
        self.spec = spec

    def set_instances(
        self, instances: tuple[InstanceAddress, ...], nodes: RelayNodes | None = None
    ) -> None:
        self.instances, self.nodes = instances, nodes

    def stop(self) -> None:
        self.stopping = True

    async def kill(self) -> None:
        self.killed = self.has_exited = True

    def say(self, *messages: RunnerMessage) -> None:
        self.messages += messages
        self.on_change()

    def die(self) -> None:
        self.has_exited = True
        self.on_change()
