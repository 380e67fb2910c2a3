"""The data-log of transform jobs: what the server says about their objects."""

from collections.abc import Iterable

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.frame.data_log import append_to_data_log, timestamp
from sagehen.frame.s3_locations import parse_location
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord
from sagehen.services.sagemaker.transform.progress import RunnerMessage
from sagehen.services.sagemaker.transform.reconciler.plan import instance_ids
from sagehen.services.sagemaker.transform.runner_messages import FailedObject, RunnerLog

__all__ = ["JobDataLog"]

SUFFIX = ".data-log"


class JobDataLog:
    """Writes `<job>/<instance>.data-log`, rotated at `max_bytes`."""

    def __init__(self, home: Home, max_bytes: int, clock: Clock) -> None:
        self._home = home
        self._max_bytes = max_bytes
        self._clock = clock

    def write(self, job: TransformJobRecord, messages: Iterable[RunnerMessage]) -> None:
        """Appends what `messages` say. Blocks; an unwritable log is only warned about."""
        first, *_ = ids = instance_ids(job)
        lines: dict[str, list[str]] = {}
        for message in messages:
            if isinstance(message, RunnerLog):
                known = message.instance_id if message.instance_id in ids else first
                lines.setdefault(known, []).append(message.line)
            elif isinstance(message, FailedObject):
                bucket = parse_location(job.input_uri).bucket
                text = f"[sagemaker logs]: {bucket}/{message.key}: {message.message}"
                lines.setdefault(first, []).append(text)
        folder, when = self._home.transform_log(job.name), timestamp(self._clock)
        for instance_id, of_instance in lines.items():
            append_to_data_log(
                folder / f"{instance_id}{SUFFIX}.log",
                [f"{when}:{line}" for line in of_instance],
                self._max_bytes,
            )
