"""The wheel and the sdist: they build and hold everything. `test_demo.py` runs the wheel's server
and demo."""

import hashlib
import tarfile
import zipfile
from pathlib import Path

from sagehen import __version__
from support.server import clean_environment, run_to_its_end
from support.wheels import package_wheel

SOURCE = Path(__file__).parents[3] / "src"


def digests(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_sdist_builds_the_same_wheel_as_the_tree(built: Path) -> None:
    assert digests(package_wheel(built)) == digests(package_wheel(built / "direct"))


def test_the_wheel_has_every_file_of_the_package(built: Path) -> None:
    files = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "sagehen").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "sagehen/state/migrations/new_state.sql" in files
    packed = {name for name in digests(package_wheel(built)) if name.startswith("sagehen/")}
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
