"""SageMaker's data-log of transform jobs: what the server says about their objects."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.frame.s3_locations import parse_location
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord
from sagehen.services.sagemaker.transform.progress import RunnerMessage
from sagehen.services.sagemaker.transform.reconciler.plan import instance_ids
from sagehen.services.sagemaker.transform.runner_messages import FailedObject, RunnerLog

__all__ = ["DataLog"]

log = logging.getLogger(__name__)

SUFFIX = ".data-log"


class DataLog:
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
        for instance_id, of_instance in lines.items():
            try:
                self._append(job.name, instance_id, of_instance)
            except OSError as error:
                log.warning("The data-log cannot be written: %s", error)

    def _append(self, job_name: str, instance_id: str, lines: Iterable[str]) -> None:
        folder = self._home.transform_log(job_name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        when = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="milliseconds")
        # Opened each time: messages are few.
        handler = RotatingFileHandler(
            folder / f"{instance_id}{SUFFIX}.log",
            maxBytes=self._max_bytes,
            backupCount=1,
            encoding="utf-8",
        )
        try:
            for line in lines:
                text = f"{when.removesuffix('+00:00')}:{line}"
                handler.emit(logging.makeLogRecord({"msg": text}))
        finally:
            handler.close()
