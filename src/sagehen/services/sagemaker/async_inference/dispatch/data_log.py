"""SageMaker's data-log: what the server says about requests."""

import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from sagehen.base.clock import Clock
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer

__all__ = ["DataLog"]

log = logging.getLogger(__name__)


class DataLog:
    """Writes a data-log in each instance's log folder below `root`, rotated at `most_bytes`."""

    def __init__(self, root: Path, max_bytes: int, clock: Clock) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._clock = clock

    def write(self, container: RoutedContainer, inference_id: str, text: str) -> None:
        """Append a line. Blocks; an unwritable log is only warned about."""
        folder = (
            self._root / container.endpoint_name / container.variant_name / container.instance_id
        )
        when = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="milliseconds")
        line = f"{when.removesuffix('+00:00')}:[sagemaker logs] [{inference_id}] {text}"
        try:
            self._add(folder, line.replace("\n", "\\n").replace("\r", "\\r"))
        except OSError as error:
            log.warning("The data-log cannot be written: %s", error)

    def _add(self, folder: Path, line: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for each line: lines are few.
        handler = RotatingFileHandler(
            folder / "data-log.log", maxBytes=self._max_bytes, backupCount=1, encoding="utf-8"
        )
        try:
            handler.emit(logging.makeLogRecord({"msg": line}))
        finally:
            handler.close()
