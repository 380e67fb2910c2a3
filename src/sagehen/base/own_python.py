"""A virtual environment per container over the server's packages: pip installs of a script leave
the server's packages unchanged.

    FOLDER/bin/python, pip    made by hand: `venv` takes ten times as long
    FOLDER/lib/…/_server.pth  the folders of the packages below
"""

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "add_folder_line",
    "make_own_python",
    "own_python",
    "own_site",
    "put_over",
    "site_folders",
]

_PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'


def make_own_python(folder: Path, below: Path | None = None, last: Sequence[str] = ()) -> None:
    """Blocks for a millisecond; raises OSError.

    Args:
        below: the interpreter of the virtual environment below; default: the server's.
        last: folders with modules that installed ones precede.
    """
    if below is None:
        base = Path(getattr(sys, "_base_executable", sys.executable))
        site, below_sites = _site(folder), site_folders()
    else:
        base = below.resolve()
        below_site = next(below.parents[1].glob("lib/python*/site-packages"))
        site = folder / below_site.relative_to(below.parents[1])
        below_sites = [str(below_site)]
    programs = folder / "bin"
    programs.mkdir(parents=True)
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    for name in ("python", "python3"):
        (programs / name).symlink_to(base)
    for name in ("pip", "pip3"):
        (programs / name).write_text(_PIP)
        (programs / name).chmod(0o755)
    _write_below(site, below_sites, last)


def own_python(folder: Path) -> Path:
    return folder / "bin" / "python"


def own_site(folder: Path) -> Path:
    """Returns the folder into which pip installs."""
    return next(folder.glob("lib/python*/site-packages"), _site(folder))


def put_over(python: Path, below: Path, last: Sequence[str] = ()) -> None:
    _write_below(_site(python.parents[1]), [str(_site(below.parents[1]))], last)


def site_folders() -> list[str]:
    import site

    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [folder for folder in site.getsitepackages() + users if Path(folder).is_dir()]


def add_folder_line(folder: str) -> str:
    """Adds the folder's own .pth files too."""
    return f"import site; site.addsitedir({folder!r})\n"


def _write_below(site: Path, below: Sequence[str], last: Sequence[str]) -> None:
    lines = [*map(add_folder_line, below), *(f"{folder}\n" for folder in last)]
    (site / "_server.pth").write_text("".join(lines))


def _site(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"
