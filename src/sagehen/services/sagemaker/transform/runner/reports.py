"""Reports finished objects to control, several at once, a few times a second."""

from collections.abc import Callable

import msgspec

from sagehen.base.clock import Clock
from sagehen.services.sagemaker.transform.runner.errors import ObjectError
from sagehen.services.sagemaker.transform.runner.listing import InputObject
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    Progress,
    RunnerLog,
    RunnerSpec,
)

__all__ = ["Frontier", "Reports"]

REPORT_SECONDS = 0.25
LOG_PREFIX = "[sagemaker logs]: "
MAX_LOG_LINES = 200
"""of one object"""


class Frontier:
    """The key up to which all objects are finished.

    Objects are numbered from 0 in the order of their keys.
    """

    def __init__(self) -> None:
        self._next = 0
        self._finished: dict[int, str] = {}
        """behind an object that is not"""
        self.through: str | None = None

    def finish(self, number: int, key: str) -> None:
        self._finished[number] = key
        while (finished_key := self._finished.pop(self._next, None)) is not None:
            self.through = finished_key
            self._next += 1


class Reports:
    """Counts, and tells control.

    `tell`: sends a message.
    """

    def __init__(self, spec: RunnerSpec, tell: Callable[[msgspec.Struct], None]) -> None:
        self.tell = tell
        self._frontier = Frontier()
        self._objects = 0
        self._objects_known = 0
        self._is_listed = False
        self._records = spec.done_records
        self._bytes = 0
        self._bytes_known = 0
        self._unfinished_bytes = 0
        """answered, of objects that are worked on"""
        self._new_keys: list[str] = []
        self._new_records = 0
        self._new_bytes = 0
        self._new_failed_records = 0
        self._told: Progress | None = None
        self._told_through = spec.done_through
        self.failed_records = spec.failed_records
        self.finished_records = spec.done_records
        """of finished objects"""
        self.error = spec.failed_error

    @property
    def bytes_listed(self) -> int | None:
        """The size of the input; None while it is not known."""
        return self._bytes_known if self._is_listed else None

    def listed(self, size: int | None) -> None:
        self._objects_known += 1
        self._bytes_known += size or 0

    def listing_ended(self) -> None:
        self._is_listed = True

    def sized(self, size: int) -> None:
        """The size of an object that the listing did not have."""
        self._bytes_known += size

    def answered(self, records: int, size: int = 0) -> None:
        self._records += records
        self._unfinished_bytes += size

    def unanswered(self, records: int, size: int) -> None:
        """Takes back what `answered` has counted: records of an object that fails, and the bytes of
        each, which are counted again when it has ended."""
        self._records -= records
        self._unfinished_bytes -= size

    def was_finished(self, number: int, item: InputObject) -> None:
        """An earlier runner has finished the object."""
        self._objects += 1
        self._bytes += item.size or 0
        self._frontier.finish(number, item.source.key)

    def finished(
        self, number: int, item: InputObject, size: int, records: int, failed_records: int
    ) -> None:
        self._objects += 1
        self._bytes += size
        self._new_keys.append(item.source.key)
        self._new_records += records
        self._new_bytes += size
        self._new_failed_records += failed_records
        self.failed_records += failed_records
        self.finished_records += records
        self._frontier.finish(number, item.source.key)

    def failed(self, number: int, item: InputObject, error: ObjectError) -> None:
        self._objects += 1
        self._bytes += item.size or 0
        self.error = self.error or error.error
        first, *others = str(error).splitlines()[:MAX_LOG_LINES] or [""]
        self.tell(FailedObject(key=item.source.key, error=error.error, message=first))
        for line in others:
            self.log(f"{item.name}: {line}")
        self._frontier.finish(number, item.source.key)

    def log(self, text: str, instance_id: str | None = None) -> None:
        self.tell(RunnerLog(instance_id=instance_id, line=LOG_PREFIX + text))

    async def keep_telling(self, clock: Clock) -> None:
        """Runs until cancelled."""
        while True:
            await clock.sleep(REPORT_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Tells what is new."""
        # Without new keys, too: control keeps the keys of failed objects behind `through`.
        if self._new_keys or self._frontier.through not in (None, self._told_through):
            self._told_through = self._frontier.through
            done = Done(
                keys=tuple(self._new_keys),
                records=self._new_records,
                input_bytes=self._new_bytes,
                failed_records=self._new_failed_records,
                through=self._frontier.through,
            )
            self._new_keys.clear()
            self._new_records = self._new_bytes = self._new_failed_records = 0
            self.tell(done)
        progress = Progress(
            objects=self._objects,
            objects_known=self._objects_known,
            is_listed=self._is_listed,
            records=self._records,
            input_bytes=self._bytes + self._unfinished_bytes,
            input_bytes_known=self._bytes_known,
        )
        if progress != self._told:
            self._told = progress
            self.tell(progress)
