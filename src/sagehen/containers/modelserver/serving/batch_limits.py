"""How large a batch may be and how long it is waited for, as the containers' variables say it.

How long calls take, for how many of them it is good to have at hand.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sagehen.containers.variables import positive, switch, whole

__all__ = ["NATURAL", "BatchLimits", "CallTimes", "read_batch_limits"]

log = logging.getLogger(__name__)

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 256 * 1024
TFS_BATCH_ROWS = 8
TFS_DELAY_MICROSECONDS = 1000

_PREFIXES = ("SAGEMAKER_TS_", "TS_", "MMS_", "SERVING_")
"""Of BATCH_SIZE and MAX_BATCH_DELAY: PyTorch's container, TorchServe, multi-model-server, DJL."""


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """One call predicts at most `max_rows` rows of requests of at most `max_bytes` together; a
    request that is larger stands alone. The first of a batch waits `delay_seconds` for the others,
    if they do not fill it before."""

    max_rows: int = MAX_BATCH_ROWS
    max_bytes: int = MAX_BATCH_BYTES
    delay_seconds: float = 0.0


NATURAL = BatchLimits()
"""What is ready goes together, and nothing waits."""


def read_batch_limits(environ: Mapping[str, str]) -> BatchLimits:
    """What is asked for; if nothing is, natural batching. Raises SettingError."""
    batches = switch(environ, "SAGEMAKER_TFS_ENABLE_BATCHING")
    if batches is not None:
        return _tensorflow_limits(environ) if batches else _chosen(1, 0)
    rows = positive(environ, *(prefix + "BATCH_SIZE" for prefix in _PREFIXES))
    delay = whole(environ, *(prefix + "MAX_BATCH_DELAY" for prefix in _PREFIXES))
    if rows is None:
        if delay:
            log.warning("A batch delay has no effect without a batch size: set both.")
        return NATURAL
    return _chosen(rows, (delay or 0) / 1000)


def _tensorflow_limits(environ: Mapping[str, str]) -> BatchLimits:
    rows = positive(environ, "SAGEMAKER_TFS_MAX_BATCH_SIZE")
    delay = whole(environ, "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS")
    return _chosen(
        rows or TFS_BATCH_ROWS, (TFS_DELAY_MICROSECONDS if delay is None else delay) / 1e6
    )


def _chosen(rows: int, delay_seconds: float) -> BatchLimits:
    """Whoever chose the rows knows how large they are."""
    return BatchLimits(max_rows=rows, max_bytes=sys.maxsize, delay_seconds=delay_seconds)


QUICK_SECONDS = 0.005
"""Work that lies ready for a worker takes no longer than this: a request that comes here could not
have begun much sooner anywhere else."""
MOST_READY = 8
"""Requests for each worker, with the one it works on."""
CALLS_NEEDED = 200
"""Before which nothing is said of the slowest in a hundred."""

_UP = 2.0
_DOWN = _UP ** (1 / 99)
"""Balanced where one call in a hundred takes longer."""


class CallTimes:
    """Follows the time within which 99 of 100 calls come back."""

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
        """How many requests a worker should have at hand, with the one it works on.

        One where a call takes its time: the others had better wait where they can still go to
        another instance. More where calls are over sooner than the next request could come. A
        power of two, so that it seldom changes.
        """
        ready = 1
        if self._calls < CALLS_NEEDED:
            return ready
        while ready < MOST_READY and self._seconds * 2 * ready <= QUICK_SECONDS:
            ready *= 2
        return ready
