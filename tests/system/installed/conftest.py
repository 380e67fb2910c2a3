"""The package as its users install it: built and put into a virtual environment once."""

import sys
import sysconfig
from pathlib import Path

import pytest

from support.server import clean_environment, run_to_its_end
from support.wheels import package_wheel

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, the wheel made from it, and below `direct` the tree's own wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run_to_its_end([*build, "--outdir", str(folder), str(ROOT)], clean_environment())
    direct = [*build, "--wheel", "--outdir", str(folder / "direct"), str(ROOT)]
    run_to_its_end(direct, clean_environment())
    return folder


@pytest.fixture(scope="session")
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
    run_to_its_end(
        [*pip, "--no-deps", "--no-index", str(package_wheel(built))], clean_environment()
    )
    return folder / "bin"
