"""Ends processes that outlive their container where no cgroup ends them."""

import asyncio
import contextlib
import ctypes
import os

import psutil

from sagehen.agent.instances.process_tree import children, end_trees

__all__ = ["Orphans"]

AGAIN_SECONDS = 0.05

_PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """Children that this process has not started itself.

    Containers adopt their descendants' orphans, and this process those that containers leave. So
    every adopted child has outlived its container.
    """

    def __init__(self) -> None:
        self._adopts = False
        self._own: set[int] = set()

    def adopt(self) -> None:
        """Must only be called in a process whose children are all containers."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._adopts = True

    def expect(self, pid: int) -> None:
        """Registers a child that is waited for elsewhere."""
        self._own.add(pid)

    def forget(self, pid: int) -> None:
        self._own.discard(pid)

    def end(self) -> None:
        """Kills adopted children, also those adopted meanwhile."""
        if not self._adopts:
            return
        with contextlib.suppress(OSError, psutil.Error):
            strangers = [pid for pid in children(os.getpid()) if pid not in self._own]
            end_trees(strangers)
            for pid in strangers:
                _bury(pid)
            if strangers:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.end)


def _bury(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
