"""Temporary files in memory: on a disk, tests wait for its writes and pay for them."""

import os
import tempfile
from pathlib import Path

import psutil

__all__ = ["use_memory"]

LEAST_BYTES = 4 * 2**30
"""free on the disk, and in memory; all tests at once have some 500 MB there"""


def use_memory(disk: Path = Path("/dev/shm")) -> None:
    """Makes `disk` the place for temporary files, here and in what is started, where it has room
    and can run programs. TMPDIR takes precedence."""
    if "TMPDIR" in os.environ or not os.access(disk, os.W_OK):
        return
    about = os.statvfs(disk)
    room = min(about.f_bavail * about.f_frsize, psutil.virtual_memory().available)
    if room >= LEAST_BYTES and not about.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(disk)
        tempfile.tempdir = None  # It may have been looked up already.
