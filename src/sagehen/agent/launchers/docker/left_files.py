"""Opens the files that a container of root has left to an agent that is not root.

The agent reads and removes the folders of its containers. The engine may do anything there, and
unpacks archives in an ended container, with its mounts: an archive's folders and files give those
that are there another mode. No program of the image is needed.
"""

import logging
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from sagehen.agent.errors import EngineError

if TYPE_CHECKING:
    from sagehen.agent.launchers.docker.engine import Engine

__all__ = ["closed_paths", "open_to_agent", "try_opening"]

log = logging.getLogger(__name__)

MAX_DEPTH = 100
"""of folders in folders: each round opens one more level"""
MEMORY_BYTES = 2**20
"""of a file that is opened; larger ones go through the disk"""


def open_to_agent(engine: "Engine", container: str) -> None:
    """Gives all users the rights to what an ended container has left in its mounts. Blocks.

    Raises:
        EngineError, OSError: it cannot.
    """
    if os.geteuid() == 0:
        return
    for mount in engine.inspect(container).get("Mounts", []):
        if mount["Type"] == "bind" and mount["RW"]:
            _open_folder(engine, container, Path(mount["Source"]), mount["Destination"])


def closed_paths(folder: Path) -> Iterator[Path]:
    """Yields what this user cannot read, and folders that this user cannot empty; what is in such
    folders is not looked for."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield folder
        return
    for path, folders, files in os.walk(folder):
        at = Path(path)
        for name in list(folders):
            if (at / name).is_symlink() or os.access(at / name, os.R_OK | os.W_OK | os.X_OK):
                continue
            folders.remove(name)
            yield at / name
        for name in files:
            if stat.S_ISREG((at / name).lstat().st_mode) and not os.access(at / name, os.R_OK):
                yield at / name


def _open_folder(engine: "Engine", container: str, folder: Path, destination: str) -> None:
    for _ in range(MAX_DEPTH):
        closed = list(closed_paths(folder))
        if not closed:
            return
        for path in closed:
            inside = PurePosixPath(destination) / path.relative_to(folder)
            with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as archive:
                if stat.S_ISDIR(path.lstat().st_mode):
                    _add_folder(archive, path, inside.name)
                else:
                    _add_file(archive, engine.pack(container, str(inside)))
                archive.seek(0)
                engine.unpack(container, str(inside.parent), archive)
    log.warning("A container has left more than %d folders in one another.", MAX_DEPTH)


def _add_folder(archive: IO[bytes], path: Path, name: str) -> None:
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o777
    entry.uid, entry.gid = status.st_uid, status.st_gid
    with tarfile.open(fileobj=archive, mode="w") as written:
        written.addfile(entry)


def _add_file(archive: IO[bytes], packed: Iterator[bytes]) -> None:
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as copy:
        for piece in packed:
            copy.write(piece)
        copy.seek(0)
        with (
            tarfile.open(fileobj=copy) as read,
            tarfile.open(fileobj=archive, mode="w") as written,
        ):
            for entry in read:
                entry.mode |= 0o666
                written.addfile(entry, read.extractfile(entry))


def try_opening(engine: "Engine", container: str) -> None:
    """Blocks; logs what does not succeed."""
    try:
        open_to_agent(engine, container)
    except (EngineError, OSError, tarfile.TarError) as error:
        log.warning(
            "The files that a container has left cannot be opened for the server's user, who "
            "cannot remove them: %s.",
            error,
        )
