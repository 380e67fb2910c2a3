"""Chooses what a container sees of its machine: programs, but no keys and no other containers."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import sagehen
from sagehen.agent.launchers.launcher import View
from sagehen.agent.launchers.walls import PRIVATE_FOLDERS, SHARED_MEMORY
from sagehen.base.home import Home
from sagehen.base.own_python import site_folders

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["HUGGING_FACE", "PERSONAL_FOLDERS", "container_view"]

PERSONAL_FOLDERS = (
    ".aws",
    ".azure",
    ".config/gcloud",
    ".docker",
    ".gnupg",
    ".kube",
    ".ssh",
)
"""the keys of the server's user: no container of SageMaker has such folders"""
HUGGING_FACE = "~/.cache/huggingface"
"""shared by all containers"""
_SYSTEM_FOLDERS = ("/run/current-system", "/run/opengl-driver", "/run/systemd/resolve")
"""programs and drivers of NixOS; the resolver of glibc"""
_RESOLVER = "/etc/resolv.conf"


def container_view(home: Home, settings: "Settings", *own_folders: Path) -> View:
    """Reads a few file names. All but `own_folders` is the same for all containers."""
    at = home.path.resolve()
    file = settings.config
    own = (*home.own, file) if file is not None and file.parent == home.path else home.own
    personal = tuple(Path.home() / name for name in PERSONAL_FOLDERS)
    covered = (at, *personal, *map(Path, PRIVATE_FOLDERS), SHARED_MEMORY)
    paths = (
        *own_folders,
        home.environments,
        *_linked_artifacts(home),
        *_machine_paths(),
        *(Path(folder) for folder in settings.shared_folders),
    )
    shown = (Path(os.path.realpath(path)) for path in paths)
    return View(
        hidden=tuple(at / path.name for path in own),
        emptied=personal,
        # The home itself, as of a PYTHONPATH that names the working folder, has the keys.
        shown=tuple(
            dict.fromkeys(path for path in shown if path != at and _is_below(path, covered))
        ),
    )


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _linked_artifacts(home: Home) -> Iterator[Path]:
    """On another disk, model data cannot be given to containers without a link to the cache."""
    try:
        if home.artifacts.stat().st_dev != home.instances.stat().st_dev:
            yield home.artifacts
    except OSError:
        pass


def _package_folders() -> Iterator[Path]:
    """Yields where this Python finds packages; .pth files name folders anywhere."""
    # The first is the working folder, which may hold anything.
    for folder in map(Path, sys.path[1:]):
        if folder.is_absolute() and str(folder) not in PRIVATE_FOLDERS and folder.is_dir():
            yield folder


@cache
def _machine_paths() -> tuple[Path, ...]:
    """Python and its packages, this package, and what containers share."""
    resolver = Path(_RESOLVER).resolve()
    if str(resolver.parent) in PRIVATE_FOLDERS:
        resolvers = [resolver]
    else:
        # The folder: the file is replaced when the network changes.
        resolvers = (
            [resolver.parent] if _is_below(resolver, tuple(map(Path, PRIVATE_FOLDERS))) else []
        )
    return (
        Path(sys.prefix),
        Path(sys.base_prefix),
        *map(Path, site_folders()),
        *_package_folders(),
        Path(sagehen.__file__).parents[1],
        Path(HUGGING_FACE).expanduser(),
        *map(Path, _SYSTEM_FOLDERS),
        *resolvers,
    )
