"""Faults in the calls that code makes to the system, one at a time."""

import errno
import io
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import obstore
from obstore.exceptions import GenericError

__all__ = ["FailingCalls"]

FILE_MODULES = ("posix", "fcntl", "_io", "io")
NO_SYSTEM_CALLS = (os.fspath, os.urandom, os.getpid)
SQLITE_CALLS = ("execute", "executemany", "commit")
OBSTORE_CALLS = (obstore.put, obstore.get, obstore.head, obstore.list, obstore.delete)


class FailingCalls:
    """Counts calls of this thread to functions in C that work on files, on SQLite and on another
    store, and fails one of them before it is made."""

    def __init__(self, number: int = 0, code: int = errno.EIO) -> None:
        self.count = 0
        self.failed = ""
        """the call that was failed"""
        self._number = number
        self._code = code

    @contextmanager
    def active(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _see(self, _frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        error = self._error(function)
        if error is None:
            return
        self.count += 1
        if self.count == self._number:
            self.failed = function.__qualname__
            if function.__name__ in ("close", "__exit__") and isinstance(
                function.__self__, io.IOBase
            ):
                function.__self__.close()  # A close that reports an error has closed.
            raise error

    def _error(self, function: Any) -> Exception | None:
        reason = os.strerror(self._code)
        if function in NO_SYSTEM_CALLS:
            return None
        if function in OBSTORE_CALLS:
            return GenericError(reason)
        owner = type(getattr(function, "__self__", None))
        if owner in (sqlite3.Connection, sqlite3.Cursor) and function.__name__ in SQLITE_CALLS:
            return sqlite3.OperationalError(reason)
        if (function.__module__ or owner.__module__) in FILE_MODULES:
            return OSError(self._code, reason)
        return None
