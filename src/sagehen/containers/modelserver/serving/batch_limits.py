"""Reads batch limits from the environment and times calls to size queues."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sagehen.containers.variables import non_negative, positive, switch

__all__ = ["NATURAL", "BatchLimits", "CallTimes", "read_batch_limits"]

log = logging.getLogger(__name__)

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 256 * 1024
TFS_BATCH_ROWS = 8
TFS_DELAY_MICROSECONDS = 1000

_PREFIXES = ("SAGEMAKER_TS_", "TS_", "MMS_", "SERVING_")
"""PyTorch's container, TorchServe, multi-model-server, DJL."""


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Bounds a batch; a larger request is predicted alone. A batch waits up to `delay_seconds` to
    fill.
    """

    max_rows: int = MAX_BATCH_ROWS
    max_bytes: int = MAX_BATCH_BYTES
    delay_seconds: float = 0.0


NATURAL = BatchLimits()
"""Batches what is ready, without waiting."""


def read_batch_limits(environ: Mapping[str, str]) -> BatchLimits:
    """Returns NATURAL unless limits are set. Raises SettingError."""
    batches = switch(environ, "SAGEMAKER_TFS_ENABLE_BATCHING")
    if batches is not None:
        return _tensorflow_limits(environ) if batches else _user_limits(1, 0)
    rows = positive(environ, *(prefix + "BATCH_SIZE" for prefix in _PREFIXES))
    delay = non_negative(environ, *(prefix + "MAX_BATCH_DELAY" for prefix in _PREFIXES))
    if rows is None:
        if delay:
            log.warning("A batch delay has no effect without a batch size: set both.")
        return NATURAL
    return _user_limits(rows, (delay or 0) / 1000)


def _tensorflow_limits(environ: Mapping[str, str]) -> BatchLimits:
    rows = positive(environ, "SAGEMAKER_TFS_MAX_BATCH_SIZE")
    delay = non_negative(environ, "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS")
    return _user_limits(
        rows or TFS_BATCH_ROWS, (TFS_DELAY_MICROSECONDS if delay is None else delay) / 1e6
    )


def _user_limits(rows: int, delay_seconds: float) -> BatchLimits:
    """Leaves bytes unlimited: a user who chose the rows knows their size."""
    return BatchLimits(max_rows=rows, max_bytes=sys.maxsize, delay_seconds=delay_seconds)


QUICK_SECONDS = 0.005
"""Limit for a worker's queue: a request cannot begin much sooner elsewhere."""
MAX_READY = 8
"""Requests per worker, including the current one."""
CALLS_NEEDED = 200
"""Calls before the 99th percentile is known."""

_UP = 2.0
_DOWN = _UP ** (1 / 99)
"""In balance when one call in a hundred takes longer."""


class CallTimes:
    """Tracks the 99th percentile of call times."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._calls = 0

    def record(self, seconds: float) -> None:
        self._calls += 1
        if self._calls == 1:
            self._seconds = seconds
        elif seconds > self._seconds:
            self._seconds *= _UP
        else:
            self._seconds /= _DOWN

    @property
    def ready(self) -> int:
        """The number of requests that a worker should have, including the current one.

        Slow calls get one: others should wait where they can still go to another instance. Quick
        calls get more. A power of two changes seldom.
        """
        ready = 1
        if self._calls < CALLS_NEEDED:
            return ready
        while ready < MAX_READY and self._seconds * 2 * ready <= QUICK_SECONDS:
            ready *= 2
        return ready
