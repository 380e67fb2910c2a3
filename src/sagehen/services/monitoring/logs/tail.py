"""Reads what the containers of an endpoint or a job have printed on one machine: the last lines,
and then what is added. `sagehen logs` shows it; in a cluster each node reads its own."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from sagehen.base.home import Home
from sagehen.services.monitoring.logs.lines import LogEvent, lines_from, start_of_line
from sagehen.services.monitoring.logs.stored_log import StoredLog, open_log

__all__ = ["ContainerTail", "TailLine", "TailPage", "TailRequest", "choose_kind", "read_tail"]

PAGE_BYTES = 4 * 2**20
"""of one answer, about"""
_FIRST_READ_BYTES = 64 * 1024
_LEAST_READ_BYTES = 4 * 1024
"""of each log, also where an answer is full"""
ENDPOINTS, TRAINING, TRANSFORM = "endpoints", "training-jobs", "transform-jobs"


class TailRequest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """of an endpoint or a job"""
    kind: str = ""
    """the folder of the logs; empty: the first in which there are some"""
    is_job: bool = False
    lines: int = 0
    """the last ones of each log, as far as they fit into one answer"""
    since_ms: int | None = None
    """lines from that time on, instead of the last ones"""
    everything: bool = False
    """all lines, instead of the last ones"""
    positions: dict[str, int] | None = None
    """where the last answer has ended, by log; None: this is the first request"""


class TailLine(msgspec.Struct, frozen=True, array_like=True):
    ms: int
    """milliseconds since the epoch"""
    log: str
    """its path below the folder of the endpoint or job"""
    text: str


class TailPage(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    """empty where there are no logs"""
    lines: list[TailLine] = []
    positions: dict[str, int] = {}
    has_more: bool = False
    """lines that did not fit"""


def choose_kind(kinds: Iterable[str], is_job: bool) -> str:
    """Returns the kind of logs that a name means, of those that there are; empty without any."""
    order = (TRAINING, TRANSFORM) if is_job else (ENDPOINTS, TRAINING, TRANSFORM)
    found = set(kinds)
    return next((kind for kind in order if kind in found), "")


def read_tail(home: Home, request: TailRequest, now: float) -> TailPage:
    """Blocks. `now`: seconds since the epoch."""
    name = _safe_name(request.name)
    kinds = [
        kind for kind in (ENDPOINTS, TRAINING, TRANSFORM) if (home.logs / kind / name).is_dir()
    ]
    kind = request.kind if request.kind in kinds else ""
    kind = kind or ("" if request.kind else choose_kind(kinds, request.is_job))
    if not kind:
        return TailPage()
    folder = home.logs / kind / name
    lines: list[TailLine] = []
    positions: dict[str, int] = {}
    left, has_more = PAGE_BYTES, False
    for path in sorted(folder.rglob("*.log")):
        key = path.relative_to(folder).as_posix()
        tail = ContainerTail(path, (request.positions or {}).get(key, 0))
        if request.positions is None:
            events = tail.first(request, now, left)
        else:
            events = tail.added(now, left)
        left -= sum(event.end - event.position for event in events)
        has_more = has_more or tail.has_more
        positions[key] = tail.position
        lines += [TailLine(event.ms, key, event.text.rstrip()) for event in events if event.text]
    return TailPage(kind=kind, lines=lines, positions=positions, has_more=has_more)


class ContainerTail:
    """One log, read from a position on."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self.position = position
        """of the next line, in bytes of all output ever"""
        self.has_more = False
        """lines that did not fit"""

    def first(
        self, request: TailRequest, now: float, most_bytes: int | None = None
    ) -> list[LogEvent]:
        """`most_bytes`: about as many are read, of the last lines the last ones; None: all."""
        log = open_log(self.path)
        if log is None:
            return []
        if request.everything:
            return self._from(log, log.start, now, most_bytes)
        if request.since_ms is not None:
            at = log.position_at(request.since_ms)
            start = start_of_line(log, at) if at > log.start else at
            return self._from(log, start, now, most_bytes)
        most = log.end if most_bytes is None else max(most_bytes, _LEAST_READ_BYTES)
        size = min(_FIRST_READ_BYTES, most)
        while True:
            start = max(log.start, log.end - size)
            start = start if start == log.start else start_of_line(log, start)
            events = [event for event in self._from(log, start, now) if event.text]
            if len(events) >= request.lines or start == log.start or size >= most:
                return events[-request.lines :] if request.lines else []
            size = min(4 * size, most)

    def added(self, now: float, most_bytes: int | None = None) -> list[LogEvent]:
        log = open_log(self.path)
        if log is None:
            return []
        return self._from(log, max(self.position, log.start), now, most_bytes)

    def _from(
        self, log: StoredLog, position: int, now: float, most_bytes: int | None = None
    ) -> list[LogEvent]:
        events: list[LogEvent] = []
        self.position, self.has_more = position, False
        for event in lines_from(log, position, log.end, now):
            if most_bytes is not None and event.position - position >= most_bytes:
                self.has_more = True
                break
            events.append(event)
            self.position = event.end
        return events


def _safe_name(name: str) -> str:
    """Names must not lead out of the folder."""
    last = Path(name).name
    return last if last not in ("", "..") else "_"
