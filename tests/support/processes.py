"""Processes that this one has started, as they come and go."""

import contextlib
from pathlib import Path

import psutil

__all__ = [
    "CONTAINER_NAME",
    "children_with",
    "container_pid",
    "container_pids",
    "fork_server_pids",
]

FORK_SERVER = b"sagehen.agent.launchers.fork_server"


def children_with(word: str, of: int | None = None) -> list[psutil.Process]:
    """Those below process `of`, by default this one, that run and have that word in their command.

    Others may end, or wait to be noticed, while they are looked at.
    """
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(of).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if word in one.cmdline():
                    found.append(one)
    return found


CONTAINER_NAME = """
import os

def container_name():
    stat = open(f"/proc/{os.getppid()}/stat").read()
    return os.environ["SAGEMAKER_BASE_DIR"] + "@" + stat.rpartition(")")[2].split()[19]
"""
"""for a script: names its container and that one's start, as a PID in its own namespace does not"""


def container_pid(name: str) -> int:
    """The PID on this machine of the main process of a container, by its `container_name`."""
    base, _, started = name.rpartition("@")
    mark = f"SAGEHEN_BASE_DIR={base}".encode()
    for pid in psutil.pids():
        folder = Path("/proc", str(pid))
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            marks = (folder / "environ").read_bytes().split(b"\0")
            if stat[19] == started and mark in marks and not _is_first(pid):
                return pid
    raise AssertionError(f"no container is {name}")


def container_pids(agent: int) -> list[int]:
    """The PIDs of the containers' main processes, children of the agent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [
            one.pid
            for one in psutil.Process(agent).children()
            if not _is_first(one.pid) and not _is_fork_server(one.pid)
        ]
    return []


def fork_server_pids(agent: int) -> list[int]:
    """The PIDs of the agent's fork servers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(agent).children()
        return [one.pid for one in children if _is_fork_server(one.pid)]
    return []


def _is_fork_server(pid: int) -> bool:
    try:
        return FORK_SERVER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_first(pid: int) -> bool:
    """Whether it is the first process of a process namespace, which only adopts orphans."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
    return len(numbers) > 1 and numbers[-1] == "1"
