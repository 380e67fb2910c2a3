"""Makes changes of folders outlast a loss of power."""

import errno
import os
from pathlib import Path

__all__ = ["make_folder", "sync_folder"]


def make_folder(folder: Path) -> None:
    """Makes a private folder and those above it, so that they outlast a loss of power. An earlier
    process may have made them, and not have come to the sync."""
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        sync_folder(folder.parent)
    except OSError as error:
        # A folder that may not be read is another user's, and so is what was made in it. Some file
        # systems that only hold mount points (autofs, squashfs) cannot sync.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL):
            raise


def sync_folder(folder: Path) -> None:
    """Makes a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
