"""Measures and ends process trees by /proc. In proportional memory, shared pages count once."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import psutil

__all__ = [
    "TreeMemory",
    "TreeSize",
    "children",
    "descendants",
    "end_trees",
    "kernel_kills",
    "machine_memory_bytes",
    "measure_tree",
    "open_connections",
    "tree_cpu_seconds",
    "tree_listening_ports",
    "tree_memory_bytes",
]

STOPPING_ROUNDS = 50
"""each finds children forked before their parents were stopped"""

_LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")
"""if missing, psutil scans all processes"""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_THREADS, _RESIDENT = 17, 21
"""indices in /proc/PID/stat, after the name: `num_threads`, `rss`"""
_TIMES = slice(11, 15)
"""`utime`, `stime`, `cutime`, `cstime`"""
_LOCAL_ADDRESS, _STATE, _INODE = 1, 3, 9
"""indices in the lines of /proc/PID/net/tcp"""
_LISTENS, _ESTABLISHED = "0A", "01"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class TreeSize:
    """Cheap figures of a process and its descendants."""

    resident_bytes: int
    """shared pages count once per process"""
    tasks: int
    """including threads"""


def measure_tree(pid: int) -> TreeSize:
    resident = tasks = 0
    for fields in _stats(pid):
        resident += int(fields[_RESIDENT]) * _PAGE_BYTES
        tasks += int(fields[_THREADS])
    return TreeSize(resident, tasks)


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants, with ended ones that were waited for."""
    return sum(sum(map(int, fields[_TIMES])) for fields in _stats(pid)) / _TICKS


def tree_listening_ports(pid: int) -> list[int]:
    """TCP ports of a process and its descendants, each in its own network namespace."""
    ports: set[int] = set()
    by_network: dict[str, dict[str, int]] = {}
    for descendant in descendants(pid):
        with contextlib.suppress(OSError):
            network = os.readlink(f"/proc/{descendant}/ns/net")
            if network not in by_network:
                by_network[network] = _listening(descendant)
            listening = by_network[network]
            ports |= {listening[inode] for inode in _sockets(descendant) if inode in listening}
    return sorted(ports)


def _listening(pid: int) -> dict[str, int]:
    """Ports by the inode of the socket, in the namespace of `pid`. Raises OSError."""
    ports = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/net/{name}") as table:
            for line in table:
                fields = line.split()
                if fields[_STATE] == _LISTENS:
                    ports[fields[_INODE]] = int(fields[_LOCAL_ADDRESS].rpartition(":")[2], 16)
    return ports


def open_connections(pid: int, port: int) -> int:
    """Counts those to a TCP port in the network namespace of `pid`."""
    count = 0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{name}") as table:
            for line in table:
                fields = line.split()
                if fields[_STATE] == _ESTABLISHED:
                    count += int(fields[_LOCAL_ADDRESS].rpartition(":")[2], 16) == port
    return count


def _sockets(pid: int) -> Iterator[str]:
    """Yields inodes. Raises OSError."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]


def _stats(root: int) -> Iterator[list[bytes]]:
    for pid in descendants(root):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as stat:
            # The name in brackets may hold any character.
            yield stat.read().rpartition(b")")[2].split()


def end_trees(roots: Iterable[int]) -> None:
    """Kills processes with all descendants, even while these fork. Blocks briefly."""
    roots, stopped, quiet = tuple(roots), set[int](), 0
    for _ in range(STOPPING_ROUNDS):
        pids = {pid for root in roots for pid in descendants(root)} - stopped
        # Look twice: a listing may miss the sibling of a process that ends.
        quiet = 0 if pids else quiet + 1
        if quiet > 1:
            break
        _signal(pids, signal.SIGSTOP)
        stopped |= pids
    _signal(stopped, signal.SIGKILL)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(root: int) -> Iterator[int]:
    """Yields `root` too; may miss some while others end."""
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        with contextlib.suppress(OSError, psutil.Error):
            pending += children(pid)


def children(pid: int) -> list[int]:
    """Raises OSError or psutil.Error if the process has ended."""
    if not _LISTS_CHILDREN:
        return [child.pid for child in psutil.Process(pid).children()]
    pids: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/children") as file,
        ):
            pids += map(int, file.read().split())
    return pids


EXACT_SECONDS = 1.0
"""reuse of the figure for shared memory"""


def machine_memory_bytes() -> int:
    return int(psutil.virtual_memory().total)


def kernel_kills() -> int:
    """OOM kills on the whole machine since boot."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as counts:
        for line in counts:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def tree_memory_bytes(pid: int) -> int:
    """Proportional memory; 0 if the process has ended. Takes milliseconds."""
    return sum(map(_proportional_bytes, descendants(pid)))


class TreeMemory:
    """Cheap repeated readings: the kernel walks all pages for proportional memory, so only the
    resident size is read more than once per EXACT_SECONDS."""

    def __init__(self, pid: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pid = pid
        self._monotonic = monotonic
        self._tree: list[int] = []
        self._shared_bytes = 0
        self._exact_at = -EXACT_SECONDS

    def read(self) -> int:
        """Returns bytes; 0 if the process has ended. Blocks briefly."""
        tree = list(descendants(self._pid))
        resident = sum(map(_resident_bytes, tree))
        now = self._monotonic()
        if tree != self._tree or now - self._exact_at >= EXACT_SECONDS:
            exact = sum(map(_proportional_bytes, tree))
            self._tree, self._exact_at = tree, now
            self._shared_bytes = max(0, resident - exact)
        return max(0, resident - self._shared_bytes)


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as numbers:
            return int(numbers.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
