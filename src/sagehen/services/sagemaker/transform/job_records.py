"""Transform jobs and their progress as they are stored."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sagehen.frame.container_specs import ContainerSpec
from sagehen.services.sagemaker.hosting.records import DefinedRecord
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus

__all__ = [
    "OPTION_PREFIX",
    "TransformJobRecord",
    "TransformProgress",
    "options_of",
]

OPTION_PREFIX = "SAGEHEN_TRANSFORM_"
"""of variables of the job that are Sagehen's options, and that containers do not get"""


def options_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns Sagehen's own options, without their prefix."""
    return {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in environment.items()
        if name.startswith(OPTION_PREFIX)
    }


class TransformJobRecord(DefinedRecord, frozen=True, kw_only=True):
    """A transform job."""

    job_id: str
    """unique; instances' ids are made from it"""
    modified_at: float
    status: JobStatus = JobStatus.IN_PROGRESS
    stage: JobStage = JobStage.WAITING
    containers: tuple[ContainerSpec, ...]
    """a copy of the model's: the model may be deleted while the job runs"""
    started_at: float | None = None
    """TransformStartTime: when its first instance was in service"""
    ended_at: float | None = None
    stop_requested_at: float | None = None
    failure_reason: str | None = None

    @property
    def instance_type(self) -> str:
        return str(self.definition["TransformResources"]["InstanceType"])

    @property
    def instance_count(self) -> int:
        return int(self.definition["TransformResources"]["InstanceCount"])

    @property
    def input_uri(self) -> str:
        source: dict[str, Any] = self.definition["TransformInput"]["DataSource"]["S3DataSource"]
        return str(source["S3Uri"])

    @property
    def options(self) -> dict[str, str]:
        return options_of(self.definition.get("Environment", {}))


class TransformProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress that a job's runners have reported."""

    job_id: str
    done_through: str | None = None
    """every object up to this key is finished"""
    failed_objects: int = 0
    """finished objects without output"""
    failed_error: str | None = None
    """the first of their errors: `ClientError` or `AlgorithmError`"""
    objects: int = 0
    """finished, also failed ones"""
    objects_known: int = 0
    is_listed: bool = False
    """False: there may be more objects than `objects_known`"""
    records: int = 0
    """answered, also of objects that are not finished"""
    done_records: int = 0
    """of finished objects"""
    failed_records: int = 0
    """tolerated ones"""
    input_bytes: int = 0
    """of finished objects"""
    input_bytes_known: int = 0
    max_concurrent: int | None = None
    """as resolved by the runner; None until then"""
    max_payload_mb: int | None = None
    batch_strategy: str | None = None
    updated_at: float = 0
