"""Giving containers their folders of model data, and removing folders, read-only ones too."""

import errno
import os
import shutil
import stat
from pathlib import Path

__all__ = ["MOST_COPIED_BYTES", "give_folder", "is_disk_full", "reason_of", "remove_tree"]

MOST_COPIED_BYTES = 256 * 2**20
"""Model data up to this size is copied for each container."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def give_folder(source: Path, target: Path, size_bytes: int) -> None:
    """Put a folder of model data where a container looks for it. Blocks.

    A copy, because the container may be stronger than file modes (a root's is) and would change
    what others are given; only of large data, which is rarely written beside, all share one.
    """
    remove_tree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if size_bytes > MOST_COPIED_BYTES:
        target.symlink_to(source)
    else:
        shutil.copytree(source, target, symlinks=True)


def is_disk_full(error: OSError) -> bool:
    """Whether more could be written if there was less on the disk."""
    return error.errno in _FULL or any(os.strerror(code) in reason_of(error) for code in _FULL)


def reason_of(error: OSError) -> str:
    """Why something was not written. Copying a tree fails with a list of what failed in it."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        *_, (_, _, reason) = error.args[0]
        return str(reason)
    return error.strerror or str(error)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all below it, as far as that is possible; never through links. Blocks.

    Only who may write a folder can empty it, so that right is taken first.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for place, _, _ in os.walk(folder):
        if not os.stat(place).st_mode & stat.S_IWUSR:
            os.chmod(place, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
