"""Environments with the libraries that an image's tag names, and the model server's own.

They stand alone: the server's packages are for another version of the libraries, or of Python.
"""

import importlib.util
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import sagehen
from sagehen.containers.python_envs.install import (
    InstallRun,
    NoWheel,
    RequirementsError,
    python_of,
)

__all__ = ["LEAST_PYTHON", "ImageLibraries", "installed_pythons"]

LEAST_PYTHON = (3, 10)
"""of the model server and the training toolkit"""
OWN_LIBRARIES = ("httptools>=0.6.4", "msgspec>=0.21", "uvloop>=0.21")
"""of the model server; a test compares them with pyproject.toml"""
# AWS's images have these; libraries of their time import pkg_resources of setuptools.
_OTHER_LIBRARIES = ("pip", "setuptools<81", "cloudpickle")
_FOLDERS = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/usr/local/bin",
    "/usr/bin",
    "/opt/python/*/bin",
)
_PROGRAM = re.compile(r"python(3)\.(\d+)")
_CPU_PACKAGES = {"tensorflow": (0, 0), "xgboost": (2, 1)}
"""the first version that exists as `…-cpu`, which is without CUDA's libraries"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageLibraries:
    """The libraries of an environment that stands in for an image."""

    image: str
    python: str
    """the image's own, `3.8`, or "" """
    libraries: tuple[str, ...]
    """exact requirements, `scikit-learn==1.2.1`"""
    companions: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(library.replace("==", " ") for library in self.libraries)
        return f"The libraries of the image {self.image} ({names})"

    @property
    def requirements(self) -> list[str]:
        exact = [_for_this_machine(library) for library in self.libraries]
        return [*exact, *self.companions, *OWN_LIBRARIES, *_OTHER_LIBRARIES]

    def key_parts(self) -> Iterator[str | bytes]:
        yield from ("image", self.python, *self.requirements)
        yield str(_package_folder())
        # Another Python may have wheels that those of today lack.
        yield from sorted(f"{minor} {path}" for minor, path in installed_pythons().items())

    def make(self, folder: Path, run: InstallRun) -> bool:
        """Tries each Python from 3.10 on that is installed. Raises RequirementsError."""
        pythons = _in_order(installed_pythons(), self.python)
        reason = ""
        for (major, minor), python in pythons:
            try:
                self._make_with(python, folder, run)
            except NoWheel as error:
                shutil.rmtree(folder, ignore_errors=True)
                reason = error.reason
                log.info("There are no wheels for Python %d.%d: %s", major, minor, reason)
                continue
            (_site_folder(folder) / "sagehen").symlink_to(_package_folder())
            return True
        raise RequirementsError(self._no_python([version for version, _ in pythons], reason))

    def _make_with(self, python: str, folder: Path, run: InstallRun) -> None:
        uv = None if run.has_pip_files else find_uv()
        if uv is not None:
            run([*uv, "venv", "--quiet", "--python", python, str(folder)], self)
            command = [*uv, "pip", "install", "--python", python_of(folder)]
            command += ["--no-index"] if run.no_index else []
            run([*command, "--only-binary", ":all:", *self.requirements], self)
            return
        has_pip = importlib.util.find_spec("pip") is not None
        options = ["--without-pip"] if has_pip else []
        run([python, "-m", "venv", *options, str(folder)], self)
        pip = [sys.executable, "-m", "pip", "--python", python_of(folder)]
        if not has_pip:
            pip = [python_of(folder), "-m", "pip"]
        pip += ["install", "--no-input", "--progress-bar", "off", "--disable-pip-version-check"]
        run([*pip, "--only-binary", ":all:", *self.requirements], self)

    def _no_python(self, tried: list[tuple[int, int]], reason: str) -> str:
        names = ", ".join(f"{major}.{minor}" for major, minor in tried)
        own = f"The image has Python {self.python}; the" if self.python else "The"
        return (
            f"{self} cannot be installed for a Python that is here. {own} model server needs "
            f"{LEAST_PYTHON[0]}.{LEAST_PYTHON[1]} or later, and for Python {names}, installed "
            f"here, not all of them have wheels ({reason}). Install another Python, as 3.10 for "
            "scikit-learn 1.0-1, use an image with newer libraries, or run what is installed: "
            'image_versions = "installed" in sagehen.toml.'
        )


def find_uv() -> list[str] | None:
    """Returns the command of uv, on the PATH or in this environment."""
    if path := shutil.which("uv"):
        return [path]
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    return None


def installed_pythons() -> dict[tuple[int, int], str]:
    """Finds interpreters from 3.10 on; the server's own stands for its version."""
    own = getattr(sys, "_base_executable", sys.executable)
    found: dict[tuple[int, int], str] = {}
    for folder in _program_folders():
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in sorted(names):
            match = _PROGRAM.fullmatch(name)
            if match is None or not os.access(folder / name, os.X_OK):
                continue
            version = int(match[1]), int(match[2])
            if version >= LEAST_PYTHON and version not in found:
                found[version] = str(folder / name)
    return found | {sys.version_info[:2]: own}


def _program_folders() -> Iterator[Path]:
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        # pyenv's shims run whatever version its files name, or none.
        if entry and Path(entry).name != "shims":
            yield Path(entry)
    for pattern in _FOLDERS:
        path = Path(pattern).expanduser()
        yield from sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _in_order(
    pythons: Mapping[tuple[int, int], str], wanted: str
) -> list[tuple[tuple[int, int], str]]:
    """The image's own version first, then the server's, then the oldest."""

    def rank(version: tuple[int, int]) -> tuple[bool, bool, tuple[int, int]]:
        name = f"{version[0]}.{version[1]}"
        return name != wanted, version != sys.version_info[:2], version

    return [(version, pythons[version]) for version in sorted(pythons, key=rank)]


def _for_this_machine(library: str) -> str:
    name, _, version = library.partition("==")
    least = _CPU_PACKAGES.get(name)
    if least is None or os.path.exists("/dev/nvidiactl"):
        return library
    parts = version.split(".")
    return f"{name}-cpu=={version}" if (int(parts[0]), int(parts[1])) >= least else library


def _package_folder() -> Path:
    return Path(sagehen.__file__).parent


def _site_folder(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))
