"""The wheel and the sdist: they build, hold everything, and the installed wheel runs."""

import hashlib
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagehen import __version__
from support.plain_http import ask
from support.server import clean_environment, eventually, run_to_its_end

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, the wheel made from it, and below `direct` the tree's own wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run_to_its_end([*build, "--outdir", str(folder), str(ROOT)], clean_environment())
    direct = [*build, "--wheel", "--outdir", str(folder / "direct"), str(ROOT)]
    run_to_its_end(direct, clean_environment())
    return folder


@pytest.fixture(scope="module")
def scripts(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a virtual environment with the wheel, over this environment's libraries."""
    folder = tmp_path_factory.mktemp("venv")
    run_to_its_end(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], clean_environment()
    )
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Behind the environment's own packages, so that the wheel is found before the editable install.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    run_to_its_end([*pip, "--no-deps", "--no-index", str(wheel(built))], clean_environment())
    return folder / "bin"


def wheel(folder: Path) -> Path:
    return folder / f"sagehen-{__version__}-py3-none-any.whl"


def digests(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_sdist_builds_the_same_wheel_as_the_tree(built: Path) -> None:
    assert digests(wheel(built)) == digests(wheel(built / "direct"))


def test_the_wheel_has_every_file_of_the_package(built: Path) -> None:
    files = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "sagehen").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "sagehen/state/migrations/new_state.sql" in files
    packed = {name for name in digests(wheel(built)) if name.startswith("sagehen/")}
    assert packed == files


def test_the_sdist_has_what_its_readers_look_for(built: Path) -> None:
    with tarfile.open(built / f"sagehen-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "examples/first_endpoint.py"} <= names


def test_the_installed_wheel_says_its_version(scripts: Path) -> None:
    environment = clean_environment()
    where = [str(scripts / "python"), "-c", "import sagehen; print(sagehen.__file__)"]
    assert run_to_its_end(where, environment).startswith(str(scripts.parent))
    said = run_to_its_end([str(scripts / "sagehen"), "--version"], environment)
    assert said == f"sagehen {__version__}\n"


@pytest.fixture
def server(scripts: Path, short_path: Path) -> Iterator[Path]:
    """The home of a server that the installed wheel runs."""
    home = short_path / "home"
    command = [scripts / "sagehen", "up", "--port", "0", "--home", home]
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL) as process:
        try:
            eventually((home / "run" / "address").exists)
            yield home
        finally:
            process.terminate()
    assert process.returncode == 0


def test_the_installed_wheel_runs_a_server(server: Path) -> None:
    assert ask((server / "run" / "address").read_text() + "/_sagehen/health").status == 200


def test_the_installed_wheel_trains_deploys_and_predicts(scripts: Path) -> None:
    assert "checks passed" in run_to_its_end(
        [str(scripts / "sagehen"), "demo"], clean_environment()
    )
