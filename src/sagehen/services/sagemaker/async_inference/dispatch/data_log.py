"""The data-log of asynchronous endpoints: what the server says about requests."""

from pathlib import Path

from sagehen.base.clock import Clock
from sagehen.frame.data_log import append_to_data_log, timestamp
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainer

__all__ = ["RequestDataLog"]


class RequestDataLog:
    """Writes a data-log in each instance's log folder below `root`, rotated at `max_bytes`."""

    def __init__(self, root: Path, max_bytes: int, clock: Clock) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._clock = clock

    def write(self, container: RoutedContainer, inference_id: str, text: str) -> None:
        """Appends a line. Blocks; an unwritable log is only warned about."""
        folder = (
            self._root / container.endpoint_name / container.variant_name / container.instance_id
        )
        line = f"{timestamp(self._clock)}:[sagemaker logs] [{inference_id}] {text}"
        escaped = line.replace("\n", "\\n").replace("\r", "\\r")
        append_to_data_log(folder / "data-log.log", [escaped], self._max_bytes)
