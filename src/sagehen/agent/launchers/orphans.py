"""Ends what a container leaves behind where no cgroup does, however it got away from its group."""

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

    A container is the new parent of all its descendants whose own has ended, and this process that
    of what a container leaves. So whoever comes here has outlived its container.
    """

    def __init__(self) -> None:
        self._adopts = False
        self._own: set[int] = set()

    def adopt(self) -> None:
        """From now on; for a process that has no other children than containers."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._adopts = True

    def expect(self, pid: int) -> None:
        """A child that is waited for by others."""
        self._own.add(pid)

    def forget(self, pid: int) -> None:
        self._own.discard(pid)

    def end(self) -> None:
        """End those that are here, and those that come because of that."""
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
