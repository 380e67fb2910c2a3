"""Clears away what an agent that was killed may have left behind."""

import logging
import os
from pathlib import Path

import psutil

from sagehen.agent.folders import remove_tree
from sagehen.home import ATTEMPT_NAME, INSTANCE_NAME, Home

__all__ = ["BASE_MARK", "clear_leftovers"]

BASE_MARK = "SAGEHEN_BASE_DIR"
"""A variable of containers: their folder as the machine knows it, whatever they themselves see."""

log = logging.getLogger(__name__)


def clear_leftovers(home: Home) -> None:
    """End containers' processes, remove their folders and sockets. Blocks; before any start.

    The containers end with their agent, but what they started themselves need not. It is known by
    the folder in its environment, which no one else has.
    """
    folders = {home.instances: INSTANCE_NAME, home.jobs: ATTEMPT_NAME}
    marks = tuple(f"{BASE_MARK}={folder}{os.sep}".encode() for folder in folders)
    for process in psutil.process_iter():
        if process.pid != os.getpid() and _has_mark(process.pid, marks):
            log.warning("Process %d of an earlier container is ended.", process.pid)
            _kill(process)
    for folder, ours in folders.items():
        for left in folder.iterdir():
            if ours.fullmatch(left.name):
                remove_tree(left)
            else:
                log.warning("%s is none of Sagehen's, and stays.", left)
    for socket in home.run.glob("i-*.sock"):
        if INSTANCE_NAME.match(socket.stem):  # A number may follow, of a container.
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
        log.warning("Process %d does not end.", process.pid)
