"""Images of this machine's own files: no registry is needed."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

__all__ = ["derive_image", "import_image"]

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
_LEFT_OUT = ("test", "idlelib", "lib2to3", "ensurepip", "tkinter", "__pycache__", "pydoc_data")
_PRINT = "import sysconfig; print(sysconfig.get_path('stdlib'))"


def import_image(client: Any, name: str) -> None:
    """Imports an image with Debian's Python and the programs `serve` and `train`."""
    repository, _, tag = name.rpartition(":")
    changes = ["ENV PATH=/opt/program:/usr/bin:/bin"]
    client.api.import_image_from_data(_archive(), repository=repository, tag=tag, changes=changes)


def derive_image(client: Any, name: str, source: str, *changes: str) -> None:
    """Makes an image of another, with lines such as `LABEL a=b`."""
    repository, _, tag = name.rpartition(":")
    container = client.containers.create(source, "unused")
    container.commit(repository, tag, changes=list(changes))
    container.remove()


def _archive() -> bytes:
    library = subprocess.check_output([PYTHON, "-ISc", _PRINT], text=True).strip()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        _add(archive, Path(PYTHON).resolve(), PYTHON)
        archive.add(library, library, filter=_kept)
        for path in _libraries(library):
            _add(archive, path.resolve(), str(path))
        for folder in ("/tmp", "/etc", "/opt/ml/code"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        for name in ("serve", "train"):
            entry = archive.gettarinfo(HERE / name, f"/opt/program/{name}")
            entry.mode = 0o755
            with (HERE / name).open("rb") as file:
                archive.addfile(entry, file)
    return raw.getvalue()


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    archive.add(path, name, recursive=False)


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(entry.name).parts
    return None if any(part in _LEFT_OUT or part.startswith("config-") for part in parts) else entry


def _libraries(library: str) -> set[Path]:
    """The shared libraries of Python and its modules, by `ldd`."""
    programs = [PYTHON, *map(str, Path(library, "lib-dynload").glob("*.so"))]
    printed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (word for line in printed.splitlines() for word in line.split() if line[:1].isspace())
    found = {Path(word) for word in words if word.startswith("/") and Path(word).is_file()}
    # The C library loads it by itself, for threads that end with the process.
    (c_library,) = (path for path in found if path.name == "libc.so.6")
    return {*found, c_library.with_name("libgcc_s.so.1")}
