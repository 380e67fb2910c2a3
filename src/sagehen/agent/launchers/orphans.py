"""Ends processes that outlive their container where no cgroup ends them."""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterator

import psutil

from sagehen.agent.instances.process_tree import children, end_trees

__all__ = ["Orphans"]

RECHECK_SECONDS = 0.05

_PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """Children that this process has not started itself.

    Containers adopt their descendants' orphans, and this process those that containers leave. So
    every adopted child has outlived its container.
    """

    def __init__(self) -> None:
        self._adopts = False
        self._expected: set[int] = set()
        self._starts = 0

    def adopt(self) -> None:
        """Makes this process adopt orphans. All its children must be containers."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._adopts = True

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While a container starts, its children of this process are not known yet."""
        self._starts += 1
        try:
            yield
        finally:
            self._starts -= 1

    def expect(self, pid: int) -> None:
        """Registers a child that is waited for elsewhere."""
        self._expected.add(pid)

    def forget(self, pid: int) -> None:
        self._expected.discard(pid)

    def end(self) -> None:
        """Kills adopted children, also those adopted meanwhile."""
        if not self._adopts:
            return
        if self._starts:
            asyncio.get_running_loop().call_later(RECHECK_SECONDS, self.end)
            return
        with contextlib.suppress(OSError, psutil.Error):
            adopted = [pid for pid in children(os.getpid()) if pid not in self._expected]
            end_trees(adopted)
            for pid in adopted:
                _reap(pid)
            if adopted:
                asyncio.get_running_loop().call_later(RECHECK_SECONDS, self.end)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
