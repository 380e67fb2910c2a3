"""Reads the logs in a home: those of the server's roles, and those of containers."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sagehen.errors import NotFound
from sagehen.home import Home

__all__ = ["read_logs"]

_FOLLOW_POLL_SECONDS = 0.2


def read_logs(home: Home, endpoint: str | None, *, lines: int, follow: bool) -> Iterator[str]:
    """The last `lines` of each log, each line after the log's name; then what is added to them.

    Raises:
        NotFound: there are no logs of that endpoint.
    """
    folder = home.logs / "endpoints" / _as_folder(endpoint) if endpoint else home.logs
    if not _find(folder, nested=endpoint is not None):
        raise NotFound(
            f"There are no logs of the endpoint {endpoint} in {home.path}. "
            "Its name is written as it was created; `sagehen status` lists the endpoints."
            if endpoint
            else f"There are no logs in {home.path}: no server has run with this home yet."
        )
    seen: dict[Path, int] = {}
    for path in _find(folder, nested=endpoint is not None):
        with suppress(FileNotFoundError):  # rotated away since it was found
            seen[path] = path.stat().st_size
            with path.open(errors="replace") as file:
                last = deque(file, maxlen=lines)
            yield from (_label(folder, path, line) for line in last)
    while follow:
        time.sleep(_FOLLOW_POLL_SECONDS)
        for path in _find(folder, nested=endpoint is not None):
            with suppress(FileNotFoundError):
                yield from (_label(folder, path, line) for line in _added(path, seen))


def _as_folder(endpoint: str) -> str:
    # A name from the command line must not walk out of the folder of logs.
    return Path(endpoint).name or "_"


def _find(folder: Path, *, nested: bool) -> list[Path]:
    return sorted(folder.rglob("*.log") if nested else folder.glob("*.log"))


def _label(folder: Path, path: Path, line: str) -> str:
    return f"{path.relative_to(folder).with_suffix('')} | {line.rstrip()}"


def _added(path: Path, seen: dict[Path, int]) -> list[str]:
    """The whole lines written since last time; from the start where the file was rotated."""
    start = seen.get(path, 0)
    size = path.stat().st_size
    if size < start:
        start = 0
    with path.open("rb") as file:
        file.seek(start)
        new = file.read(size - start)
    whole = new[: new.rfind(b"\n") + 1]
    seen[path] = start + len(whole)
    return whole.decode("utf-8", "replace").splitlines()
