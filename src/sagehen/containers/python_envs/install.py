"""Runs pip and uv, and installs a user's requirements on top of the server's environment."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
import threading
import venv
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from sagehen.base.errors import SagehenError
from sagehen.base.own_python import add_folder_line, site_folders
from sagehen.containers.leftovers import MARK, end_leftovers

__all__ = [
    "EnvironmentSpec",
    "InstallRun",
    "Installer",
    "NoWheel",
    "RequirementsError",
    "Spec",
    "file_digest",
    "python_of",
]

_OUTPUT_LINES = 50
_PIECE_BYTES = 1 << 20
_REDIRECTING_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIREMENT")
"""change where or what pip installs"""

_UV_VARIABLES = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
_UV_CAUSE = re.compile(r"(?:cause:|╰─▶)\s*(Because .+)")
_NO_WHEEL = re.compile("No matching distribution found|No solution found|Conflict|conflicting")

log = logging.getLogger(__name__)


class RequirementsError(SagehenError):
    """The requirements cannot be installed."""


class NoWheel(RequirementsError):
    """A package has no wheel for this Python; `reason` is the installer's."""

    def __init__(self, spec: object, reason: str) -> None:
        super().__init__(f"{spec} cannot be installed: {reason}")
        self.reason = reason


class Spec(Protocol):
    """The contents of an environment."""

    def key_parts(self) -> Iterable[str | bytes]:
        """Everything that decides what is installed, besides pip's settings."""

    def make(self, folder: Path, run: "InstallRun") -> bool:
        """Makes the environment; returns whether it has packages besides the server's.

        Raises RequirementsError.
        """


@dataclass(frozen=True)
class EnvironmentSpec:
    """The requirements, or the project, of one code folder."""

    folder: Path
    package: bool = False
    """installs the folder itself, a Python project"""

    @property
    def requirements(self) -> Path | None:
        file = self.folder / "requirements.txt"
        return file if file.is_file() else None

    def __str__(self) -> str:
        """The path as the user knows it, without the container's folder."""
        if self.package:
            return f"The package in {self.folder.name}"
        return f"The requirements in {self.folder.name}/requirements.txt"

    def key_parts(self) -> Iterator[str | bytes]:
        yield from (sys.version, sys.prefix, *_installed(), *_editable(self))
        yield from map(file_digest, _files_of(self))

    def make(self, folder: Path, run: "InstallRun") -> bool:
        try:
            # The server's pip is visible there.
            with_pip = importlib.util.find_spec("pip") is None
            venv.EnvBuilder(symlinks=True, with_pip=with_pip).create(folder)
            site = next(folder.glob("lib/python*/site-packages"))
            (site / "_server.pth").write_text("".join(map(add_folder_line, site_folders())))
        except (OSError, subprocess.SubprocessError) as error:
            raise RequirementsError(f"No environment can be made in {folder}: {error}") from None
        run(_pip(python_of(folder), self), self, self.folder)  # the folder, for local paths
        return any(site.glob("*.dist-info")) or any(site.glob("*.egg-link"))


def python_of(folder: Path) -> str:
    return str(folder / "bin" / "python")


class InstallRun(Protocol):
    """Runs pip or uv, within the bound on one installation."""

    has_pip_files: bool
    """pip's configuration files exist, which uv does not read"""
    no_index: bool
    """PIP_NO_INDEX is set, for which uv has no variable"""

    def __call__(self, command: list[str], spec: object, folder: Path | None = None) -> None:
        """Raises NoWheel or RequirementsError."""


class Installer:
    """Runs pip, or uv.

    Args:
        variables: additional pip settings.
        seconds: bound on one installation.
    """

    def __init__(
        self, variables: Mapping[str, str], seconds: float, has_pip_files: bool = False
    ) -> None:
        self.has_pip_files = has_pip_files
        self._seconds = seconds
        self._marks: set[str] = set()  # of running processes
        variables_given = {**os.environ, **variables, "PIP_USER": "0"}
        self._variables = {
            name: variables_given[name]
            for name in variables_given
            if name not in _REDIRECTING_VARIABLES
        }
        if "PIP_CACHE_DIR" not in variables_given:
            # The environment itself is the cache.
            self._variables.setdefault("PIP_NO_CACHE_DIR", "1")
        self.no_index = self._variables.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes")
        for ours, uvs in _UV_VARIABLES.items():
            if ours in self._variables:
                self._variables.setdefault(uvs, self._variables[ours])

    def install(self, spec: Spec, folder: Path) -> bool:
        """Makes the environment; returns whether it has packages besides the server's.

        Raises RequirementsError with the installer's last error.
        """
        return spec.make(folder, self)

    def close(self) -> None:
        for mark in tuple(self._marks):
            end_leftovers(mark)

    def __call__(self, command: list[str], spec: object, folder: Path | None = None) -> None:
        log.info("Installing: %s.", spec)
        mark = uuid4().hex
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=self._variables | {MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._marks.add(mark)
        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            end_leftovers(mark)

        timer = threading.Timer(self._seconds, give_up)
        timer.daemon = True
        timer.start()
        with process:
            output = _relay_output(process)
        timer.cancel()
        self._marks.discard(mark)
        if process.returncode != 0:
            in_time = f" within {self._seconds:g} s" if timed_out.is_set() else ""
            reason = _last_error(output)
            if not in_time and _NO_WHEEL.search(" ".join(output)):
                raise NoWheel(spec, reason)
            raise RequirementsError(f"{spec} cannot be installed{in_time}: {reason}")


def _pip(python: str, spec: EnvironmentSpec) -> list[str]:
    pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    pip += ["--disable-pip-version-check"]
    pip += ["-r", str(spec.requirements)] if spec.requirements else []
    pip += ["."] if spec.package else []
    return pip


def _relay_output(process: "subprocess.Popen[str]") -> list[str]:
    """Logs all lines; returns the last ones."""
    last_lines: deque[str] = deque(maxlen=_OUTPUT_LINES)
    for line in process.stdout or ():
        sys.stderr.write(line)
        if line.strip():
            last_lines.append(line.strip())
    return list(last_lines)


def _last_error(lines: list[str]) -> str:
    """Returns pip's last error, which notes may follow, or uv's cause."""
    for line in lines:
        if cause := _UV_CAUSE.match(line):
            return cause[1]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["pip said nothing"])[-1]


def _installed() -> list[str]:
    """The server's own packages, which are not installed again."""
    folders = [
        Path(entry_path)
        for entry_path in sys.path
        if entry_path.endswith(("site-packages", "dist-packages"))
    ]
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))


def _editable(spec: EnvironmentSpec) -> list[str]:
    """The folder, if the installed package refers to it."""
    words = spec.requirements.read_text(errors="replace").split() if spec.requirements else []
    return [str(spec.folder)] if "-e" in words or "--editable" in words else []


def _files_of(spec: EnvironmentSpec) -> list[Path]:
    files = _all_below(spec.folder) if spec.package else []
    if spec.requirements is None:
        return files
    return [spec.requirements, *_files_named_in(spec.requirements), *files]


def _files_named_in(requirements: Path) -> list[Path]:
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


def file_digest(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.digest()
