"""How each object of a job is read, cut and processed."""

from dataclasses import dataclass

from sagehen.services.sagemaker.transform.data_processing.errors import FilterError
from sagehen.services.sagemaker.transform.data_processing.processing import (
    Processing,
    processing_of,
)
from sagehen.services.sagemaker.transform.object_formats import object_format
from sagehen.services.sagemaker.transform.records.batches import Cutter
from sagehen.services.sagemaker.transform.records.cutting import make_cutter
from sagehen.services.sagemaker.transform.runner.errors import JobError
from sagehen.services.sagemaker.transform.runner.parameters import MAX_PAYLOAD_MB
from sagehen.services.sagemaker.transform.runner_messages import RunnerSettings, RunnerSpec

__all__ = ["ObjectPlan", "ObjectPlans", "payload_bytes"]


def payload_bytes(settings: RunnerSettings) -> int:
    """Returns the most bytes of a request."""
    return (settings.max_payload_mb or MAX_PAYLOAD_MB) * 2**20


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    cutter: Cutter
    processing: Processing | None
    quoted_newlines: bool
    parquet_as: str | None
    """the object is Parquet, to be converted to this"""


class ObjectPlans:
    """Makes the plans of one job."""

    def __init__(self, spec: RunnerSpec, settings: RunnerSettings) -> None:
        """Raises JobError (its text is for the data-log) or Invalid."""
        self._spec = spec
        self._settings = settings
        try:
            plan = self.plan("")
        except FilterError as error:
            raise JobError(error.failure, str(error)) from error
        self.content_type = object_format(spec, "").content_type
        """that the container gets"""
        self.streams = (
            not settings.max_payload_mb and spec.split_type == "None" and plan.processing is None
        )
        """whether objects go to the container as they are, of any size"""

    def plan(self, key: str) -> ObjectPlan:
        spec = self._spec
        form = object_format(spec, key)
        return ObjectPlan(
            cutter=make_cutter(
                spec.split_type,
                self._settings.batch_strategy,
                payload_bytes(self._settings),
                form.content_type,
                csv_quoted_newlines=form.quoted_newlines,
            ),
            processing=processing_of(spec, key),
            quoted_newlines=form.quoted_newlines,
            parquet_as=form.parquet_as,
        )
