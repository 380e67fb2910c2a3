"""SageMaker's data-logs: what the server says about the requests and objects of instances."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from sagehen.base.clock import Clock

__all__ = ["append_to_data_log", "timestamp"]

log = logging.getLogger(__name__)


def append_to_data_log(file: Path, lines: Iterable[str], max_bytes: int) -> None:
    """Appends to a log that is rotated at `max_bytes`. Blocks; if it cannot be written, only warns.

    Opened each time: lines are few.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=max_bytes, backupCount=1, encoding="utf-8")
        try:
            for line in lines:
                handler.emit(logging.makeLogRecord({"msg": line}))
        finally:
            handler.close()
    except OSError as error:
        log.warning("The data-log cannot be written: %s", error)


def timestamp(clock: Clock) -> str:
    """Returns the time now as data-logs have it: UTC, in milliseconds, without its zone."""
    when = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="milliseconds")
    return when.removesuffix("+00:00")
