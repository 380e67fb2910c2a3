"""The log format of all processes."""

import json
import logging
import sys
import time

from sagehen.base.metrics import METRICS, Metric, MetricKind

__all__ = ["METRICS", "LineFormatter", "Metric", "MetricKind", "configure_logging", "shown"]

_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LONGEST_VALUE = 2000


class LineFormatter(logging.Formatter):
    """Formats one line: time, level, role, logger, sentence, then each `extra` as `key=value`."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when = f"{seconds}.{record.msecs:03.0f}Z"
        sentence = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        parts = [when, record.levelname, self._role, f"{record.name}: {sentence}"]
        # Libraries add fields of their own to each record, such as Ray its `_ray_timestamp_ns`.
        parts += [
            f"{key}={shown(value)}"
            for key, value in vars(record).items()
            if value is not None and key not in _PLAIN_FIELDS and not key.startswith("_")
        ]
        text = " ".join(parts)
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def shown(value: object) -> str:
    """Formats a value; quotes it if it could be taken for several values or lines."""
    text = str(value)
    if len(text) > _LONGEST_VALUE:
        text = text[:_LONGEST_VALUE] + "…"
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


def configure_logging(level: str, role: str) -> None:
    """Logs to stderr from `level` on; each line names `role`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(role))
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(level)
    # Their INFO and DEBUG only concern themselves.
    for chatty in ("alembic", "asyncio", "botocore", "urllib3", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
