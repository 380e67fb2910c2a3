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
    Installer,
    RequirementsError,
    Spec,
    file_digest,
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
        max_bytes: bound on unused environments.
        seconds: bound on making one, or waiting for it.
    """

    def __init__(
        self,
        folder: Path,
        own_folder: Path,
        max_bytes: int,
        seconds: float,
        variables: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._own_folder = own_folder
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._variables = variables
        self._installer = Installer(variables, seconds, has_pip_files=bool(self._settings_files()))
        self._closing = threading.Event()

    def acquire(self, spec: Spec) -> EnvironmentLease:
        """Blocks until the environment exists. Raises RequirementsError."""
        try:
            self._make_folder()
            return self._acquire(spec, self._folder / self._key(spec))
        except OSError as error:
            raise RequirementsError(f"{spec} cannot be installed: {error}") from error

    def close(self) -> None:
        self._closing.set()
        self._installer.close()

    def _make_folder(self) -> None:
        """Raises OSError if neither folder is writable."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(self._folder, os.W_OK | os.X_OK):
                return
            reason = "it is read-only"
        except OSError as error:
            reason = str(error)
        if self._folder != self._own_folder:
            log.warning(
                "Python environments are not shared with other containers, as %s cannot be "
                "used: %s.",
                self._folder,
                reason,
            )
            self._folder = self._own_folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _acquire(self, spec: Spec, folder: Path) -> EnvironmentLease:
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
                        self._make(spec, folder)
                    finally:
                        os.close(lock)
                    continue
            if time.monotonic() > deadline or self._closing.wait(_POLL_SECONDS):
                raise RequirementsError(
                    f"{spec} cannot be installed: another server does it, and did not end "
                    f"within {self._seconds:g} s."
                )

    def _make(self, spec: Spec, folder: Path) -> None:
        """Needs the exclusive lock; replaces a killed process's remains."""
        if _complete(folder) is not None:
            return
        _remove(folder)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(_remove, folder)
            own = self._installer.install(spec, folder)
            on_failure.pop_all()
        record = msgspec.json.encode(_Complete(_size_bytes(folder), own))
        (folder / "complete.new").write_bytes(record)
        (folder / "complete.new").rename(folder / "complete")
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Removes the least recently used first, down to the bound."""
        total_bytes = 0
        for folder in sorted(self._folders(), key=_used_at, reverse=True):
            if (lock := _lock(folder, fcntl.LOCK_EX)) is None:
                continue
            complete = _complete(folder)
            total_bytes += complete.size_bytes if complete else 0
            if complete is None or total_bytes > self._max_bytes:
                _remove(folder)
                os.unlink(_lock_file(folder))
            os.close(lock)

    def _folders(self) -> list[Path]:
        """Folders with other names are not ours."""
        return [path for path in self._folder.iterdir() if _KEY.fullmatch(path.name)]

    def _key(self, spec: Spec) -> str:
        """Returns a digest of all that decides what is installed."""
        digest = hashlib.sha256()
        variables = (
            f"{name}={self._variables[name]}"
            for name in sorted(self._variables)
            if _is_pip_variable(name)
        )
        for part in (*variables, *spec.key_parts(), *map(file_digest, self._settings_files())):
            digest.update(part if isinstance(part, bytes) else part.encode(errors="replace"))
            digest.update(b"\0")
        return digest.hexdigest()[:32]

    def _settings_files(self) -> list[Path]:
        named = self._variables.get("PIP_CONFIG_FILE", "")
        files = [Path(file).expanduser() for file in _PIP_FILES]
        return [file for file in [*files, Path(named or "/")] if file.is_file()]


def _is_pip_variable(name: str) -> bool:
    return name.startswith("PIP_")


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
