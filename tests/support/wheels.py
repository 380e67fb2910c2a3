"""Packages small enough to be made by hand."""

import zipfile
from pathlib import Path


def package_wheel(folder: Path) -> Path:
    """Where the build of this package puts the wheel."""
    # Tests also copy this file to where a project is built, and there is no Sagehen.
    from sagehen import __version__

    return folder / f"sagehen-{__version__}-py3-none-any.whl"


def make_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    """A wheel of a module that says its own version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
