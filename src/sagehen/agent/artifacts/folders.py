"""Folders of model data: giving them to containers, removing them."""

import errno
import os
import shutil
import stat
from pathlib import Path

__all__ = ["MAX_COPIED_BYTES", "error_text", "give_folder", "is_disk_full", "remove_tree"]

MAX_COPIED_BYTES = 256 * 2**20
"""larger data is shared"""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def give_folder(source: Path, target: Path, size_bytes: int) -> None:
    """Copies small data: a container run as root could change a shared folder despite its modes.
    Large data is shared, as containers rarely write beside it. Blocks."""
    remove_tree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if size_bytes > MAX_COPIED_BYTES:
        target.symlink_to(source)
    else:
        shutil.copytree(source, target, symlinks=True)


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL or any(os.strerror(code) in error_text(error) for code in _FULL)


def error_text(error: OSError) -> str:
    """`copytree` raises a list of errors."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        *_, (_, _, reason) = error.args[0]
        return str(reason)
    return error.strerror or str(error)


def remove_tree(folder: Path) -> None:
    """Removes a folder without following links. Blocks.

    A read-only folder could not be emptied, so its mode is changed first.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for path, _, _ in os.walk(folder):
        if not os.stat(path).st_mode & stat.S_IWUSR:
            os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
