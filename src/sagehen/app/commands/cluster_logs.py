"""Reads the logs of containers on all machines of a cluster, by the server of this home."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sagehen.app.commands.control_client import call_control
from sagehen.app.commands.logs import Line, Selection, by_time, no_logs, show_lines
from sagehen.base.errors import NotFound, Unavailable
from sagehen.base.home import Home
from sagehen.services.monitoring.logs.tail import TailPage, TailRequest, choose_kind

__all__ = ["is_in_cluster", "read_cluster_logs"]

FOLLOW_POLL_SECONDS = 1.0
ANSWER_SECONDS = 60.0
_FOLDER = Path("logs")
"""stands for the folders of all nodes"""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    nodes: dict[str, TailPage]
    missing: tuple[str, ...] = ()
    """nodes that do not answer"""


def is_in_cluster(home: Home) -> bool:
    """Whether a server runs with this home, as a machine of a cluster."""
    return home.node_addresses.exists() and home.address.exists()


def read_cluster_logs(
    home: Home,
    name: str,
    selection: Selection,
    *,
    follow: bool,
    job: bool,
    warn: Callable[[str], object],
) -> Iterator[str]:
    """Yields the selected lines; with `follow`, later ones too.

    Args:
        warn: called with a sentence when nodes do not answer any more, or do so again.

    Raises:
        NotFound: no such logs.
        Unavailable: the server does not answer.
    """
    reader = _Reader(home, warn)
    request = msgspec.structs.replace(selection.of(name), is_job=job)
    lines = reader.read(request)
    kind = choose_kind(reader.kinds, job)
    if not kind:
        raise NotFound(no_logs("on the machines of the cluster that answer", name))
    request = msgspec.structs.replace(request, kind=kind)
    if len(reader.kinds) > 1:
        reader.forget()
        lines = reader.read(request)
    while reader.has_more:
        lines += reader.read(request)
    chosen = sorted(filter(selection.has, lines), key=by_time)
    yield from reader.show(chosen[-selection.lines :] if selection.lines else [])
    while follow:
        time.sleep(FOLLOW_POLL_SECONDS)
        try:
            added = reader.read(request)
        except Unavailable as error:
            # A server that is started anew, or the control of another one that takes over.
            warn(str(error))
            continue
        yield from reader.show(sorted(filter(selection.has, added), key=by_time))


class _Reader:
    def __init__(self, home: Home, warn: Callable[[str], object]) -> None:
        self._home = home
        self._warn = warn
        self._missing: tuple[str, ...] = ()
        self.forget()

    def forget(self) -> None:
        """Has everything read anew."""
        self._positions: dict[str, dict[str, int]] | None = None
        self._logs: set[Path] = set()
        self.kinds: set[str] = set()
        self.has_more = False

    def read(self, request: TailRequest) -> list[Line]:
        """Reads what has not been read. Raises Unavailable."""
        answer = self._ask(request)
        if answer.missing != self._missing:
            self._missing = answer.missing
            self._warn(_sentence(answer.missing))
        # What has been read of nodes that are away is read when they are back.
        self._positions = {
            **(self._positions or {}),
            **{node_id: page.positions for node_id, page in answer.nodes.items()},
        }
        self.kinds = {page.kind for page in answer.nodes.values() if page.kind}
        self.has_more = any(page.has_more for page in answer.nodes.values())
        lines = [
            Line(line.ms, line.text, _FOLDER / line.log)
            for page in answer.nodes.values()
            for line in page.lines
        ]
        self._logs |= {_FOLDER / log for page in answer.nodes.values() for log in page.positions}
        return lines

    def show(self, lines: Sequence[Line]) -> Iterator[str]:
        return show_lines(lines, _FOLDER, self._logs)

    def _ask(self, request: TailRequest) -> _Answer:
        body: dict[str, Any] = {
            "request": msgspec.to_builtins(request),
            "positions": self._positions,
        }
        answer = call_control(self._home, "logs", "POST", body, ANSWER_SECONDS)
        return msgspec.convert(answer, _Answer)


def _sentence(missing: Sequence[str]) -> str:
    if not missing:
        return "All machines of the cluster answer."
    return f"Without the logs on machines that do not answer: {', '.join(missing)}."
