"""Packages small enough to be made by hand."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path


def package_wheel(folder: Path) -> Path:
    """Where the build of this package puts the wheel."""
    # Tests also copy this file to where a project is built, and there is no Sagehen.
    from sagehen import __version__

    return folder / f"sagehen-{__version__}-py3-none-any.whl"


def wheel_of_installed(folder: Path, name: str) -> None:
    """A wheel of a package as it is installed here."""
    found = distribution(name)
    tags = [
        line[5:] for line in (found.read_text("WHEEL") or "").splitlines() if line[:4] == "Tag:"
    ]
    tag = tags[0] if len(tags) == 1 else _joined_tags(tags)
    stem = f"{name.replace('-', '_')}-{found.version}"
    paths = [path for path in found.files or () if not {"..", "__pycache__"} & set(path.parts)]
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as wheel:
        for path in paths:
            if path.name == "RECORD":
                lines = (f"{each},,\n" for each in paths)
                wheel.writestr(str(path), "".join(lines))
            elif path.name not in ("INSTALLER", "REQUESTED", "direct_url.json"):
                wheel.write(path.locate(), str(path))


def _joined_tags(tags: list[str]) -> str:
    """`cp311-cp311-a.b` of `cp311-cp311-a` and `cp311-cp311-b`."""
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(dict.fromkeys(column)) for column in columns)


def make_wheel(folder: Path, name: str, version: str, requires: str = "", module: str = "") -> None:
    """A wheel of a module that says its own version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    files = {
        f"{module or name}.py": f"VERSION = __version__ = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
