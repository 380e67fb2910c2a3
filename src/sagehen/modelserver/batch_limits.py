"""How large a batch may be and how long it is waited for, as the containers' variables say it."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sagehen.container.variables import positive, switch, whole

__all__ = ["NATURAL", "BatchLimits", "read_batch_limits"]

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 256 * 1024
TFS_BATCH_ROWS = 8
TFS_DELAY_MICROSECONDS = 1000

_PREFIXES = ("SAGEMAKER_TS_", "TS_", "MMS_", "SERVING_")
"""Of BATCH_SIZE and MAX_BATCH_DELAY: PyTorch's container, TorchServe, multi-model-server, DJL."""

log = logging.getLogger(__name__)


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
