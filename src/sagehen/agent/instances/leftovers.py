"""Removes leftover processes, folders and old logs of earlier agents, instances and jobs."""

import contextlib
import logging
import os
import shutil
from pathlib import Path

import psutil

from sagehen.agent.artifacts.folders import remove_tree
from sagehen.base.home import ATTEMPT_NAME, INSTANCE_NAME, Home

__all__ = ["BASE_MARK", "clear_leftovers", "prune_job_logs", "prune_logs"]

log = logging.getLogger(__name__)

BASE_MARK = "SAGEHEN_BASE_DIR"
"""a container variable: its folder as the machine sees it"""


def clear_leftovers(home: Home) -> None:
    """Ends containers' processes, removes their folders and sockets. Blocks; call before any start.

    Children of containers may survive the agent; their environment names the folder.
    """
    folders = {home.instances: INSTANCE_NAME, home.jobs: ATTEMPT_NAME}
    marks = tuple(f"{BASE_MARK}={folder}{os.sep}".encode() for folder in folders)
    for process in psutil.process_iter():
        if process.pid != os.getpid() and _has_mark(process.pid, marks):
            log.warning("Killing process %d of an earlier container.", process.pid)
            _kill(process)
    for folder, name_pattern in folders.items():
        for entry in folder.iterdir():
            if name_pattern.fullmatch(entry.name):
                remove_tree(entry)
            else:
                log.warning("%s is not a folder of Sagehen's and is left alone.", entry)
    for folder in home.run.glob("i-*/"):
        if INSTANCE_NAME.match(folder.name):  # a container's number may follow
            remove_tree(folder)
    for socket in home.run.glob("i-*.sock"):  # of earlier versions
        if INSTANCE_NAME.match(socket.stem):
            socket.unlink(missing_ok=True)


def _has_mark(pid: int, marks: tuple[bytes, ...]) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(marks) for entry in environment.split(b"\0"))


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(timeout=5)
    except psutil.Error:
        log.warning("Process %d did not end within 5 s.", process.pid)


MAX_ENDED_INSTANCES = 50


def prune_logs(logs: Path, running: frozenset[str], keep: int = MAX_ENDED_INSTANCES) -> None:
    """Removes the oldest `endpoints/<endpoint>/<variant>/<instance>` folders. Blocks.

    Keeps those `running`, and the last `keep` of the others.
    """
    ended = [
        path
        for path in (logs / "endpoints").glob("*/*/*")
        if path.name not in running and INSTANCE_NAME.fullmatch(path.name)
    ]
    ended.sort(key=_written_at, reverse=True)
    for path in ended[keep:]:
        shutil.rmtree(path, ignore_errors=True)
        for above in (path.parent, path.parent.parent):
            with contextlib.suppress(OSError):
                above.rmdir()


def prune_job_logs(folder: Path, running: frozenset[str], keep: int) -> None:
    """Removes the oldest jobs' folders in `folder`. Blocks.

    Keeps those `running`, and the last `keep` of the others.
    """
    ended = [path for path in folder.glob("*") if path.name not in running]
    if len(ended) > keep:
        ended.sort(key=_written_at, reverse=True)
    for path in ended[keep:]:
        shutil.rmtree(path, ignore_errors=True)


def _written_at(folder: Path) -> float:
    """Unix time of the latest write; 0 without files."""
    try:
        return max((file.stat().st_mtime for file in folder.iterdir()), default=0.0)
    except OSError:
        return 0.0
