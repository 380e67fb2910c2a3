"""A server that runs as a normal user, where the tests run as root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sagehen
from sagehen.base.own_python import add_folder_line, site_folders
from support.server import Server

__all__ = ["unprivileged_server"]

NOBODY = 65534
PYTHON = "/usr/bin/python3"
"""readable for all users, unlike the tests' own may be"""
_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
_MAIN = "from sagehen.app.cli import app; app(prog_name='sagehen')"


@contextmanager
def unprivileged_server(**settings: str) -> Iterator[Server]:
    """Started by another user, in a home in that user's folder. Skips where that cannot be."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user; the other servers of the tests are normal ones")
    version = "import sys; print(*sys.version_info[:2])"
    told = subprocess.run([PYTHON, "-c", version], capture_output=True, text=True, check=False)
    if told.stdout.split() != [str(number) for number in sys.version_info[:2]]:
        pytest.skip(f"{PYTHON} is of another version than the packages")
    for packages in _package_folders():
        if any(not each.stat().st_mode & 0o001 for each in Path(packages).parents):
            pytest.skip(f"only root can read the packages in {packages}")
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    try:
        python = _make_python(folder / "python")
        for path in (folder, folder / "user"):
            path.mkdir(exist_ok=True)
            os.chown(path, NOBODY, NOBODY)
        server = Server(
            folder / "user" / "home",
            {f"SAGEHEN_{name.upper()}": value for name, value in settings.items()}
            | {"HOME": str(folder / "user")},
            program=(*_AS_NOBODY, str(python), "-c", _MAIN),
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _make_python(folder: Path) -> Path:
    """A virtual environment of that Python with the packages of the tests' own."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "tests.pth").write_text("".join(map(add_folder_line, _package_folders())))
    return folder / "bin" / "python"


def _package_folders() -> list[str]:
    return [*site_folders(), str(Path(sagehen.__file__).parents[1])]
