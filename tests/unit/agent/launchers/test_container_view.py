"""What of the machine a container sees."""

import sys
from pathlib import Path

import pytest

from sagehen.agent.launchers import container_view as view
from sagehen.base.home import prepare_home
from support.state import settings_of


def test_home_that_python_finds_packages_in_is_not_shown(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with PYTHONPATH=. of a server that was started in its home."""
    home = prepare_home(short_path / "home")
    packages = short_path / "packages"
    packages.mkdir()
    monkeypatch.setattr(sys, "path", ["", str(home.path), str(packages), *sys.path[1:]])
    view._machine_paths.cache_clear()
    try:
        shown = view.container_view(home, settings_of(home.path), home.instances / "i").shown
    finally:
        view._machine_paths.cache_clear()
    assert home.path not in shown
    assert {packages, home.instances / "i"} <= {*shown}
