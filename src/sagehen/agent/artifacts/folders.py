"""Gives containers their folders of model data, and removes folders, also read-only ones."""

import errno
import os
import shutil
import stat
from pathlib import Path

__all__ = ["MOST_COPIED_BYTES", "give_folder", "is_disk_full", "reason_of", "remove_tree"]

MOST_COPIED_BYTES = 256 * 2**20
"""larger model data is shared by containers"""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def give_folder(source: Path, target: Path, size_bytes: int) -> None:
    """Puts a folder of model data where a container looks for it. Blocks.

    Small data is copied: a container run as root could change a shared folder despite its modes.
    Large data is shared, as containers rarely write beside it.
    """
    remove_tree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if size_bytes > MOST_COPIED_BYTES:
        target.symlink_to(source)
    else:
        shutil.copytree(source, target, symlinks=True)


def is_disk_full(error: OSError) -> bool:
    """Whether deleting files would let the write succeed."""
    return error.errno in _FULL or any(os.strerror(code) in reason_of(error) for code in _FULL)


def reason_of(error: OSError) -> str:
    """The cause of a failed write: copying a tree raises a list of errors."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        *_, (_, _, reason) = error.args[0]
        return str(reason)
    return error.strerror or str(error)


def remove_tree(folder: Path) -> None:
    """Removes a folder as far as possible, never through links. Blocks.

    Folders are made writable first: else they could not be emptied.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for place, _, _ in os.walk(folder):
        if not os.stat(place).st_mode & stat.S_IWUSR:
            os.chmod(place, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
