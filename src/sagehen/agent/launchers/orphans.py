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
    """Children of this process that it has not started itself.

    A container adopts the orphans among its descendants, and this process adopts those that the
    container leaves. So every adopted child has outlived its container.
    """

    def __init__(self) -> None:
        self._adopts = False
        self._own: set[int] = set()

    def adopt(self) -> None:
        """Starts adopting; only for a process without children other than containers."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._adopts = True

    def expect(self, pid: int) -> None:
        """Registers a child that is waited for elsewhere."""
        self._own.add(pid)

    def forget(self, pid: int) -> None:
        self._own.discard(pid)

    def end(self) -> None:
        """Kills the adopted children, and those that are adopted because of that."""
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
