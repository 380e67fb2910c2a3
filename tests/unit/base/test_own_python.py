"""An environment over the server's packages, without starting it."""

import os
import sys
from pathlib import Path

from sagehen.base.own_python import make_own_python, own_python, put_over, site_folders


def pth(folder: Path) -> str:
    (file,) = folder.glob("lib/*/site-packages/_server.pth")
    return file.read_text()


def test_it_has_the_servers_packages_below(tmp_path: Path) -> None:
    make_own_python(tmp_path / "own")
    python = own_python(tmp_path / "own")
    assert python.resolve() == Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    assert os.access(python.with_name("pip"), os.X_OK)
    assert site_folders()
    for folder in site_folders():
        assert repr(folder) in pth(tmp_path / "own")


def test_another_environment_can_be_put_below(tmp_path: Path) -> None:
    make_own_python(tmp_path / "upper")
    make_own_python(tmp_path / "lower")
    put_over(own_python(tmp_path / "upper"), own_python(tmp_path / "lower"))
    assert str(tmp_path / "lower") in pth(tmp_path / "upper")
