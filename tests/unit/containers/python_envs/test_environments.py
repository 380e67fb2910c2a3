"""Environments made of requirements.txt: real ones, of packages that lie in a folder."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sagehen.containers.python_envs.environments import Environments
from sagehen.containers.python_envs.install import EnvironmentSpec, RequirementsError
from support import wheels as wheels_module
from support.wheels import make_wheel


@pytest.fixture
def wheels(tmp_path):
    make_wheel(tmp_path / "wheels", "shade", "1.0")
    make_wheel(tmp_path / "wheels", "shade", "2.0", requires="numpy")
    return tmp_path / "wheels"


@pytest.fixture
def make_environments(tmp_path, wheels):
    def make(max_bytes=2**40, seconds=60.0, **variables):
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), **variables}
        own = tmp_path / "own" / "environments"
        return Environments(tmp_path / "environments", own, max_bytes, seconds, offline)

    return make


@pytest.fixture
def need(tmp_path):
    def written(text):
        folder = tmp_path / "code"
        folder.mkdir(exist_ok=True)
        (folder / "requirements.txt").write_text(text)
        return EnvironmentSpec(folder)

    return written


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "environments").iterdir())


def said_by(python, code):
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_it_is_made_once_and_sees_the_servers_own_packages(
    make_environments, need, wheels, tmp_path, caplog
):
    caplog.set_level("INFO")
    file = need("shade==2.0\nnumpy  # the server has it\n")
    environments = [make_environments(), make_environments()]
    with ThreadPoolExecutor(2) as pool:
        leases = list(pool.map(lambda each: each.acquire(file), environments))
    assert caplog.text.count("Installing: The requirements in code/requirements.txt") == 1
    (python,) = {lease.python for lease in leases}
    code = "import shade, numpy, sagehen; print(shade.VERSION, numpy.__file__, sep='\\n')"
    version, numpy_at = said_by(python, code).splitlines()
    assert version == "2.0"
    assert numpy_at.startswith(sys.prefix)
    for lease in leases:
        lease.release()
    # Another start, when nothing could be fetched any more.
    for wheel in wheels.iterdir():
        wheel.unlink()
    again = make_environments().acquire(file)
    assert again.python == python
    again.release()
    assert len(kept(tmp_path)) == 2  # with its lock


def test_what_the_server_has_already_needs_neither_a_network_nor_an_environment(
    make_environments, need
):
    lease = make_environments(PIP_FIND_LINKS="").acquire(need("numpy\nmsgspec>=0.1\n"))
    assert lease.python == sys.executable
    lease.release()


def test_what_cannot_be_met_says_pips_last_word_and_leaves_nothing(
    make_environments, need, tmp_path
):
    with pytest.raises(RequirementsError) as raised:
        make_environments().acquire(need("shade==3.0\n"))
    assert str(raised.value) == (
        "The requirements in code/requirements.txt cannot be installed: "
        "ERROR: No matching distribution found for shade==3.0"
    )
    assert [name for name in kept(tmp_path) if not name.endswith(".lock")] == []


def test_it_is_bounded_in_time(make_environments, need):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        slow = make_environments(seconds=1.5, PIP_NO_INDEX="0", PIP_INDEX_URL=index)
        with pytest.raises(RequirementsError, match=r"cannot be installed within 1\.5 s"):
            slow.acquire(need("nothing-of-that-name\n"))


class CountingInstaller:
    """Makes environments of a kibibyte."""

    def __init__(self):
        self.made = 0

    def install(self, wanted, folder):
        folder.mkdir()
        (folder / "package").write_bytes(bytes(1024))
        self.made += 1
        return True


@pytest.fixture
def quick(make_environments):
    """Without pip: what is kept, and for how long, does not depend on it."""

    def make(max_bytes):
        environments = make_environments(max_bytes)
        environments._installer = CountingInstaller()
        return environments

    return make


def test_those_used_longest_ago_go_but_never_one_in_use(quick, need):
    environments = quick(max_bytes=1500)
    leases = {}
    for name in "abc":
        leases[name] = environments.acquire(need(name))
    leases["a"].release()
    leases["b"].release()
    environments.acquire(need("d")).release()  # c is in use: of a, b and d only one has room
    assert environments._installer.made == 4
    environments.acquire(need("d")).release()
    assert environments._installer.made == 4
    environments.acquire(need("c")).release()
    assert environments._installer.made == 4
    environments.acquire(need("a")).release()
    environments.acquire(need("b")).release()
    assert environments._installer.made == 6


def test_a_folder_of_somebody_elses_is_left_alone(quick, need, tmp_path):
    other = tmp_path / "environments" / "mine"
    other.mkdir(parents=True)
    (other / "notes").write_text("x")
    quick(max_bytes=0).acquire(need("a")).release()
    assert (other / "notes").exists()


def test_one_that_was_not_finished_is_made_again(quick, need, tmp_path):
    quick(max_bytes=10**9).acquire(need("a")).release()
    (folder,) = (path for path in (tmp_path / "environments").iterdir() if path.is_dir())
    (folder / "complete").unlink()
    environments = quick(max_bytes=10**9)
    environments.acquire(need("a")).release()
    assert environments._installer.made == 1


def test_what_it_depends_on_makes_another(quick, make_environments, need, tmp_path):
    environments = quick(max_bytes=10**9)
    environments.acquire(need("-c other.txt\n")).release()
    (tmp_path / "code" / "other.txt").write_text("numpy<9\n")
    environments.acquire(need("-c other.txt\n")).release()
    assert environments._installer.made == 2
    elsewhere = make_environments(PIP_INDEX_URL="http://elsewhere/")
    elsewhere._installer = CountingInstaller()
    elsewhere.acquire(need("-c other.txt\n")).release()
    assert elsewhere._installer.made == 1


@pytest.fixture(params=["cannot be made", "cannot be written"])
def unwritable(request, tmp_path, monkeypatch):
    """The shared folder of environments."""
    shared = tmp_path / "environments"
    if request.param == "cannot be made":
        shared.write_text("a file")
    else:
        shared.mkdir(mode=0o500)
        may = os.access  # root may whatever the mode says
        monkeypatch.setattr(os, "access", lambda path, mode: path != shared and may(path, mode))
    return shared


def test_where_the_shared_folder_is_not_to_be_had_it_is_this_servers_alone(
    unwritable, quick, need, tmp_path, caplog
):
    environments = quick(max_bytes=10**9)
    lease = environments.acquire(need("a"))
    assert lease.python.startswith(str(tmp_path / "own" / "environments"))
    lease.release()
    environments.acquire(need("a")).release()
    assert environments._installer.made == 1
    assert caplog.text.count("not shared with other containers") == 1


PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import pathlib
from wheels import make_wheel

def build_wheel(folder, *_):
    make_wheel(pathlib.Path(folder), "hue", "1.0", requires="shade==1.0")
    return "hue-1.0-py3-none-any.whl"
"""


def test_a_project_is_installed_with_what_it_requires(make_environments, tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "wheels.py").write_text(Path(wheels_module.__file__).read_text())
    environments = make_environments()
    lease = environments.acquire(EnvironmentSpec(folder, package=True))
    assert (
        said_by(lease.python, "import hue, shade; print(hue.VERSION, shade.VERSION)") == "1.0 1.0"
    )
    (folder / "backend.py").write_text(BACKEND.replace("hue", "tint"))
    other = environments.acquire(EnvironmentSpec(folder, package=True))
    assert said_by(other.python, "import tint; print(tint.VERSION)") == "1.0"
    for each in (lease, other):
        each.release()


def test_a_project_that_cannot_be_built_says_so(make_environments, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "setup.py").write_text("raise SystemExit('no')\n")
    with pytest.raises(RequirementsError, match=r"^The package in code cannot be installed: ERROR"):
        make_environments().acquire(EnvironmentSpec(tmp_path / "code", package=True))
