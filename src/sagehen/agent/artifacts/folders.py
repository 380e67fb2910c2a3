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
    """Copies small data: a container run as root could change a shared file despite its modes.
    Large files are shared, as containers rarely write to them. Blocks."""
    remove_tree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if size_bytes <= MAX_COPIED_BYTES:
        shutil.copytree(source, target, symlinks=True)
    elif not _link_files(source, target):
        target.symlink_to(source)


def _link_files(source: Path, target: Path) -> bool:
    """Links each file: the container need not see the cache. Fails between file systems."""
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    except OSError as error:
        if is_disk_full(error):
            raise
        remove_tree(target)
        return False
    return True


def _link(source: str, target: str) -> None:
    os.link(source, target, follow_symlinks=False)


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
