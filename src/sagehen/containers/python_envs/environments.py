"""Shared, cached Python environments of code with a requirements.txt.

    KEY/            one environment
    KEY/complete    written last, and touched at each use
    KEY.lock        shared by users, exclusive to make or remove it

The kernel releases a lock when its process ends.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sagehen.containers.python_envs.install import (
    EnvironmentSpec,
    Installer,
    RequirementsError,
    python_of,
)

__all__ = ["EnvironmentLease", "Environments"]

_POLL_SECONDS = 0.05
_KEY = re.compile(r"[0-9a-f]{32}")
log = logging.getLogger(__name__)

_PIP_FILES = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")


class _Complete(msgspec.Struct):
    size_bytes: int
    own: bool
    """has packages besides the server's"""


@dataclass(frozen=True)
class EnvironmentLease:
    """Keeps an environment until released."""

    python: str
    lock: int

    def release(self) -> None:
        os.close(self.lock)


class Environments:
    """Environments in one folder, which servers may share.

    Args:
        own_folder: this server's alone, if `folder` is not writable.
        most_bytes: bound on unused environments.
        seconds: bound on making one, or waiting for it.
    """

    def __init__(
        self,
        folder: Path,
        own_folder: Path,
        most_bytes: int,
        seconds: float,
        variables: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._own_folder = own_folder
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._variables = variables
        self._installer = Installer(variables, seconds)
        self._closing = threading.Event()

    def acquire(self, wanted: EnvironmentSpec) -> EnvironmentLease:
        """Blocks until the environment exists. Raises RequirementsError."""
        try:
            self._make_folder()
            return self._acquire(wanted, self._folder / self._key(wanted))
        except OSError as problem:
            raise RequirementsError(f"{wanted} cannot be installed: {problem}") from problem

    def close(self) -> None:
        self._closing.set()
        self._installer.close()

    def _make_folder(self) -> None:
        """Raises OSError if neither folder is writable."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(self._folder, os.W_OK | os.X_OK):
                return
            problem = "it is read-only"
        except OSError as error:
            problem = str(error)
        if self._folder != self._own_folder:
            log.warning(
                "Environments are not shared, but made for this container alone: %s: %s.",
                self._folder,
                problem,
            )
            self._folder = self._own_folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _acquire(self, wanted: EnvironmentSpec, folder: Path) -> EnvironmentLease:
        deadline = time.monotonic() + self._seconds
        while True:
            if (lock := _lock(folder, fcntl.LOCK_SH)) is not None:
                if (complete := _complete(folder)) is not None:
                    os.utime(folder / "complete")
                    return EnvironmentLease(
                        python_of(folder) if complete.own else sys.executable, lock
                    )
                os.close(lock)
                if (lock := _lock(folder, fcntl.LOCK_EX)) is not None:
                    try:
                        self._make(wanted, folder)
                    finally:
                        os.close(lock)
                    continue
            if time.monotonic() > deadline or self._closing.wait(_POLL_SECONDS):
                raise RequirementsError(
                    f"{wanted} cannot be installed: another server does it, and did not end "
                    f"within {self._seconds:g} s."
                )

    def _make(self, wanted: EnvironmentSpec, folder: Path) -> None:
        """Needs the exclusive lock; replaces a killed process's remains."""
        if _complete(folder) is not None:
            return
        _remove(folder)
        try:
            own = self._installer.install(wanted, folder)
        except BaseException:
            _remove(folder)
            raise
        record = msgspec.json.encode(_Complete(_size_bytes(folder), own))
        (folder / "complete.new").write_bytes(record)
        (folder / "complete.new").rename(folder / "complete")
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Removes the least recently used first, down to the bound."""
        kept = 0
        for folder in sorted(self._folders(), key=_used_at, reverse=True):
            if (lock := _lock(folder, fcntl.LOCK_EX)) is None:
                continue
            complete = _complete(folder)
            kept += complete.size_bytes if complete else 0
            if complete is None or kept > self._most_bytes:
                _remove(folder)
                os.unlink(_lock_file(folder))
            os.close(lock)

    def _folders(self) -> list[Path]:
        """Folders with other names are not ours."""
        return [path for path in self._folder.iterdir() if _KEY.fullmatch(path.name)]

    def _key(self, wanted: EnvironmentSpec) -> str:
        """Returns a digest of all that decides what is installed."""
        told = hashlib.sha256()
        for part in (
            sys.version,
            sys.prefix,
            *(
                f"{name}={self._variables[name]}"
                for name in sorted(self._variables)
                if _is_pips(name)
            ),
            *_installed(),
            *_editable(wanted),
        ):
            told.update(part.encode(errors="replace") + b"\0")
        for file in (*_files_of(wanted), *self._settings_files()):
            told.update(_digest(file))
        return told.hexdigest()[:32]

    def _settings_files(self) -> list[Path]:
        named = self._variables.get("PIP_CONFIG_FILE", "")
        files = [Path(file).expanduser() for file in _PIP_FILES]
        return [file for file in [*files, Path(named or "/")] if file.is_file()]


def _is_pips(name: str) -> bool:
    return name.startswith("PIP_")


def _installed() -> list[str]:
    """The server's own packages, which are not installed again."""
    folders = [Path(each) for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    found = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return sorted(name for name in found if name.endswith((".dist-info", ".egg-info")))


def _editable(wanted: EnvironmentSpec) -> list[str]:
    """The folder, if the installed package refers to it."""
    words = wanted.requirements.read_text(errors="replace").split() if wanted.requirements else []
    return [str(wanted.folder)] if "-e" in words or "--editable" in words else []


def _files_of(wanted: EnvironmentSpec) -> list[Path]:
    files = _all_below(wanted.folder) if wanted.package else []
    if wanted.requirements is None:
        return files
    return [wanted.requirements, *_named_in(wanted.requirements), *files]


def _named_in(requirements: Path) -> list[Path]:
    """Files that the requirements name: constraints, other lists, packages."""
    words = requirements.read_text(errors="replace").replace("=", " ").split()
    named = sorted({requirements.parent / word.removeprefix("file:") for word in words})
    files: list[Path] = []
    for path in named:
        with contextlib.suppress(OSError):
            if path.is_file():
                files.append(path)
            elif path.is_dir() and path.is_relative_to(requirements.parent):
                files += _all_below(path)
    return files


def _all_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _lock(folder: Path, kind: int) -> int | None:
    """Returns None if others hold the lock."""
    file = _lock_file(folder)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(file)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)  # or removed during the open
    return None


def _complete(folder: Path) -> _Complete | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / "complete").read_bytes(), type=_Complete)
    return None


def _used_at(folder: Path) -> float:
    try:
        return (folder / "complete").stat().st_mtime
    except OSError:
        return 0.0


def _size_bytes(folder: Path) -> int:
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
