"""Installs a user's requirements on top of the server's environment."""

import importlib.util
import logging
import os
import subprocess
import sys
import threading
import venv
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sagehen.base.errors import SagehenError
from sagehen.base.own_python import add_folder_line, site_folders
from sagehen.containers.leftovers import MARK, end_leftovers

__all__ = ["EnvironmentSpec", "Installer", "RequirementsError", "python_of"]

_OUTPUT_LINES = 50
_REDIRECTING_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIREMENT")
"""change where or what pip installs"""

log = logging.getLogger(__name__)


class RequirementsError(SagehenError):
    """The requirements cannot be installed."""


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


def python_of(folder: Path) -> str:
    return str(folder / "bin" / "python")


class Installer:
    """Runs pip.

    Args:
        variables: additional pip settings.
        seconds: bound on one installation.
    """

    def __init__(self, variables: Mapping[str, str], seconds: float) -> None:
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

    def install(self, spec: EnvironmentSpec, folder: Path) -> bool:
        """Makes the environment; returns whether it has packages besides the server's.

        Raises RequirementsError with pip's last error.
        """
        try:
            # The server's pip is visible there.
            with_pip = importlib.util.find_spec("pip") is None
            venv.EnvBuilder(symlinks=True, with_pip=with_pip).create(folder)
            site = next(folder.glob("lib/python*/site-packages"))
            (site / "_server.pth").write_text("".join(map(add_folder_line, site_folders())))
        except (OSError, subprocess.SubprocessError) as error:
            raise RequirementsError(f"No environment can be made in {folder}: {error}") from None
        self._run_pip(python_of(folder), spec)
        return any(site.glob("*.dist-info")) or any(site.glob("*.egg-link"))

    def close(self) -> None:
        for mark in tuple(self._marks):
            end_leftovers(mark)

    def _run_pip(self, python: str, spec: EnvironmentSpec) -> None:
        log.info("Installing: %s.", spec)
        mark = uuid4().hex
        process = subprocess.Popen(
            _pip(python, spec),
            cwd=spec.folder,  # for local paths
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
            raise RequirementsError(f"{spec} cannot be installed{in_time}: {_last_error(output)}")


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
    """Returns pip's last error, which notes may follow."""
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["pip said nothing"])[-1]
