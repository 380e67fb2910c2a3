"""Prints lines, tables and JSON, with one form of time, for all commands."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["duration_text", "json_text", "print_line", "print_table", "time_text"]


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Prints columns as wide as their longest cell: nothing is cut or folded, and each row is one
    line, for searching."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join(cells).rstrip())


def time_text(moment: datetime | float) -> str:
    """Returns a time, or seconds since the epoch, in ISO 8601, as `sagehen logs` prints and takes
    it."""
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def duration_text(seconds: float) -> str:
    hours, rest = divmod(max(0, int(seconds)), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def json_text(value: object) -> str:
    """Returns JSON whose times are those of `time_text`: datetimes, and numbers that are named `at`
    or `…_at`."""
    return json.dumps(_with_times(value), indent=2, ensure_ascii=False, default=time_text)


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: time_text(inner)
            if f"_{name}".endswith("_at") and isinstance(inner, int | float)
            else _with_times(inner)
            for name, inner in value.items()
        }
    return [_with_times(inner) for inner in value] if isinstance(value, list) else value
