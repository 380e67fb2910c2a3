"""Reads role and container logs in order of time.

The agent records the times of containers' lines beside the log.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Protocol

from sagehen.base.errors import Invalid, NotFound
from sagehen.base.home import Home
from sagehen.services.monitoring.logs.lines import LogEvent
from sagehen.services.monitoring.logs.tail import ContainerTail, TailRequest

__all__ = ["Line", "Selection", "by_time", "no_logs", "parse_since", "read_logs", "show_lines"]

_FOLLOW_POLL_SECONDS = 0.2
_ROLE_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ")
_OWN_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?=[A-Z]+ sagehen\.)")
"""time of our own lines, removed because every line is shown with a time"""
_AGE = re.compile(r"(\d+)([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Selection:
    """Which lines to show."""

    lines: int
    """number over all logs together"""
    since: float | None = None
    """seconds since the epoch"""
    pattern: re.Pattern[str] | None = None

    @property
    def needs_everything(self) -> bool:
        """Whether the last lines of a log may not suffice."""
        return self.pattern is not None

    def of(self, name: str) -> TailRequest:
        """Returns a request for the lines of an endpoint or a job that may be shown."""
        since_ms = None if self.since is None else int(self.since * 1000)
        return TailRequest(
            name=name, lines=self.lines, since_ms=since_ms, everything=self.needs_everything
        )

    def has(self, line: "Line") -> bool:
        return (self.since is None or line.ms >= self.since * 1000) and (
            self.pattern is None or self.pattern.search(line.text) is not None
        )


def parse_since(text: str, now: float) -> float:
    """Parses an age such as `10m` or an ISO 8601 time (default UTC); raises Invalid."""
    if age := _AGE.fullmatch(text):
        return now - int(age[1]) * _UNIT_SECONDS[age[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"--since takes an age such as 30s, 10m, 2h or 1d, or a time such as "
            f"2026-01-31T12:00:00Z, but it is {text!r}."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def read_logs(
    home: Home, name: str | None, selection: Selection, *, follow: bool, job: bool = False
) -> Iterator[str]:
    """Yields the selected lines; with `follow`, later ones too.

    Args:
        name: None means the server's own logs.
        job: prefer the training job of that name, then the transform job.

    Raises:
        NotFound: no such logs.
    """
    folder = _folder(home, name, job)
    logs = _Logs(folder, is_server=name is None)
    logs.look()
    if not logs.sources:
        raise NotFound(no_logs(f"in {home.path}", name))
    first = (line for source in logs.sources.values() for line in source.last(selection))
    chosen = sorted((line for line in first if selection.has(line)), key=by_time)
    yield from logs.shown(chosen[-selection.lines :] if selection.lines else [])
    while follow:
        time.sleep(_FOLLOW_POLL_SECONDS)
        logs.look()
        added = chain.from_iterable(source.added() for source in logs.sources.values())
        yield from logs.shown(sorted(filter(selection.has, added), key=by_time))


@dataclass(frozen=True)
class Line:
    ms: int
    """milliseconds since the epoch"""
    text: str
    path: Path


def by_time(line: Line) -> int:
    return line.ms


class _Source(Protocol):
    def last(self, selection: Selection) -> Iterable[Line]:
        """Returns candidates; later lines come from `added`."""

    def added(self) -> Iterable[Line]: ...


@dataclass
class _Logs:
    folder: Path
    is_server: bool
    sources: dict[Path, _Source] = field(default_factory=dict)

    def look(self) -> None:
        paths = self.folder.glob("*.log") if self.is_server else self.folder.rglob("*.log")
        for path in sorted(paths):
            if path not in self.sources:
                self.sources[path] = _RoleLog(path) if self.is_server else _ContainerLog(path)

    def shown(self, lines: Iterable[Line]) -> Iterator[str]:
        if self.is_server:
            # A line without a time continues the line above.
            yield from (line.text for line in lines)
            return
        yield from show_lines(lines, self.folder, self.sources)


@dataclass
class _RoleLog:
    path: Path
    read_bytes: int = 0
    """bytes"""
    ms: int = 0
    """of the last line with a time"""

    def last(self, selection: Selection) -> Iterable[Line]:
        count = None if selection.needs_everything else selection.lines
        return deque(self.added(), maxlen=count)

    def added(self) -> Iterable[Line]:
        """Yields new whole lines; starts over after a rotation."""
        with suppress(FileNotFoundError):  # rotated
            status = self.path.stat()
            start = self.read_bytes if status.st_size >= self.read_bytes else 0
            self.ms = self.ms or int(status.st_mtime * 1000)
            with self.path.open("rb") as file:
                file.seek(start)
                new = file.read(status.st_size - start)
            complete = new[: new.rfind(b"\n") + 1]
            self.read_bytes = start + len(complete)
            for text in complete.decode("utf-8", "replace").splitlines():
                if when := _ROLE_TIME.match(text):
                    self.ms = int(datetime.fromisoformat(when[1] + "+00:00").timestamp() * 1000)
                yield Line(self.ms, text, self.path)


@dataclass
class _ContainerLog:
    path: Path

    def __post_init__(self) -> None:
        self._tail = ContainerTail(self.path)

    def last(self, selection: Selection) -> Iterable[Line]:
        request = selection.of("")
        return self._lines(self._tail.first(request, time.time()))

    def added(self) -> Iterable[Line]:
        return self._lines(self._tail.added(time.time()))

    def _lines(self, events: Iterable[LogEvent]) -> list[Line]:
        return [Line(event.ms, event.text.rstrip(), self.path) for event in events if event.text]


def _folder(home: Home, name: str | None, job: bool) -> Path:
    if name is None:
        return home.logs
    # Names must not lead out of the folder.
    safe_name = Path(name).name
    safe_name = safe_name if safe_name not in ("", "..") else "_"
    endpoint = home.logs / "endpoints" / safe_name
    if endpoint.exists() and not job:
        return endpoint
    training, transform = home.job_log(safe_name), home.transform_log(safe_name)
    return transform if transform.exists() and not training.exists() else training


def no_logs(where: str, name: str | None) -> str:
    if name is None:
        return f"There are no logs {where}: no server has run with this home yet."
    return (
        f"There are no logs of an endpoint, training or transform job {name} {where}. Names "
        "are case-sensitive; `sagehen status` lists the endpoints, `sagehen training list` and "
        "`sagehen transform list` the jobs."
    )


def _labels(folder: Path, paths: Iterable[Path]) -> dict[Path, str]:
    """Names containers by what differs; a single one has no label."""
    parts = {path: path.relative_to(folder).with_suffix("").parts for path in paths}
    depths = range(max(map(len, parts.values()), default=0))
    differing = [
        at
        for at in depths
        if len({names_in_path[at : at + 1] for names_in_path in parts.values()}) > 1
    ]
    names = {
        path: "/".join(names_in_path[at] for at in differing if at < len(names_in_path))
        for path, names_in_path in parts.items()
    }
    return {path: f"{name} | " if name else "" for path, name in names.items()}


def show_lines(lines: Iterable[Line], folder: Path, logs: Iterable[Path]) -> Iterator[str]:
    """`logs`: the paths below `folder` of all containers' logs."""
    labels = _labels(folder, logs)
    for line in lines:
        text = _OWN_TIME.sub("", line.text)
        yield f"{_shown_time(line.ms)} {labels[line.path]}{text}"


def _shown_time(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
