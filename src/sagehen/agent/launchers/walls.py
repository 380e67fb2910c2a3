"""The walls between containers and their machine: which ones a start puts up, and which hold here.

A wall is a namespace of the kernel with what makes it useful. Another kind of namespace is a member
of `Wall`, options in `view_options`, and a step of `become_container`.
"""

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.agent.launchers.launcher import LaunchPlan

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = [
    "NO_WALLS",
    "OPT_ML",
    "Wall",
    "Walls",
    "show_named",
    "unseen_file",
    "unwanted_walls",
    "view_environment",
    "view_options",
]

OPT_ML = Path("/opt/ml")
ETC = Path("/etc")
TMP = Path("/tmp")
SHARED_MEMORY = Path("/dev/shm")
PRIVATE_FOLDERS: dict[str, tuple[str, int | None]] = {
    "/tmp": ("tmp", 0o1777),
    "/var/tmp": ("var-tmp", 0o1777),
    "/run": ("run", 0o755),
    "/run/lock": ("run/lock", 0o1777),
    "/var/log": ("var-log", None),
    "/var/cache/nginx": ("var-cache-nginx", None),
    "/var/lib/nginx": ("var-lib-nginx", None),
}
"""names below the container's folder, and modes; None: those of the machine's folder, if there is
one, with the empty folders in it, as servers do not make theirs"""

NAMED_FOLDERS = (TMP, Path("/var/tmp"), Path("/run/media"), SHARED_MEMORY)
"""private folders where users keep programs and data; in the others are sockets and logs"""
_PROGRAM_FOLDERS = ("bin", "sbin")
_SHELL_SIGNS = "();<>|&\n"


class Wall(StrEnum):
    FILES = "files"
    """/opt/ml, /tmp, /run and /dev/shm of its own; the home is hidden"""
    ETC = "etc"
    """changes to /etc are the container's own"""
    PROCESSES = "processes"
    """process table, signals and IPC of its own"""


Walls = frozenset[Wall]
NO_WALLS: Walls = frozenset()


def unwanted_walls(settings: "Settings") -> dict[Wall, str]:
    """The walls that the user does not want, with the setting that says so."""
    if not settings.mount_opt_ml:
        return dict.fromkeys(Wall, "mount_opt_ml is off")
    if settings.container_processes == "machine":
        return {Wall.PROCESSES: 'container_processes is "machine"'}
    return {}


def view_options(plan: LaunchPlan, walls: Walls) -> Iterator[str]:
    """Yields the options of `become_container` for what the container sees."""
    if Wall.FILES not in walls or plan.base is None:
        return
    view = plan.view
    yield f"base={plan.base}"
    if plan.hosts is not None:
        yield f"hosts={plan.hosts}"
    if view.hidden:
        yield f"cover={view.hidden[0].parent}//{'/'.join(path.name for path in view.hidden)}"
    if plan.own_folder is not None:
        for folder, (name, mode) in PRIVATE_FOLDERS.items():
            if Path(folder) in view.shown or (mode is None and not os.path.isdir(folder)):
                continue
            octal = "" if mode is None else f"{mode:o}"
            yield f"private={folder}//{plan.own_folder / name}//{octal}"
        yield f"shown={plan.own_folder}"
        if SHARED_MEMORY not in view.shown:
            memory = plan.limits.memory_bytes
            # Docker's default of 64 MiB is too little for the workers of PyTorch.
            yield f"memory={SHARED_MEMORY}//{memory // 2 if memory is not None else ''}"
    # A mount on a shown folder itself would be copied with it.
    yield from (f"empty={folder}" for folder in view.emptied if folder not in view.shown)
    for path in view.named:
        target = os.path.realpath(path)
        yield f"named={path}" if target == str(path) else f"link={path}//{target}"
    yield from (f"shown={path}" for path in view.shown)
    if Wall.ETC in walls:
        yield f"overlay={ETC}"
    if Wall.PROCESSES in walls:
        yield "processes=own"


def view_environment(plan: LaunchPlan, walls: Walls) -> dict[str, str]:
    """The plan's variables by the container's paths: paths of Unix sockets may have 107 bytes."""
    is_seen = Wall.FILES in walls and plan.base is not None and TMP not in plan.view.shown
    if is_seen and plan.own_folder is not None:
        own_tmp = str(plan.own_folder / PRIVATE_FOLDERS[str(TMP)][0])
        if plan.environment.get("TMPDIR") == own_tmp:
            return plan.environment | {"TMPDIR": str(TMP)}
    return plan.environment


def show_named(plan: LaunchPlan) -> LaunchPlan:
    """Adds the paths that the command names in private folders to the plan's view."""
    found: list[Path] = []
    unseen = (*plan.view.hidden, *plan.view.emptied)
    for path in _unseen_paths(plan):
        if not any(map(path.is_relative_to, unseen)):
            folder = path if os.path.isdir(path) else path.parent
            if folder.name in _PROGRAM_FOLDERS:
                folder = folder.parent  # an environment, with the program's libraries
            # What lies beside a program belongs to it, but not in a folder of all programs.
            choices = (place for place in (folder, path) if _is_in(place, NAMED_FOLDERS))
            found += [next(choices)] if _is_in(path, NAMED_FOLDERS) else []
    for target in [Path(os.path.realpath(path)) for path in found]:
        if _is_in(target, NAMED_FOLDERS) and not any(map(target.is_relative_to, unseen)):
            found.append(target)
    outermost = {path for path in found if not _is_in(path, found)}
    return replace(plan, view=replace(plan.view, named=tuple(sorted(outermost))))


def unseen_file(plan: LaunchPlan) -> Path | None:
    """A file of the command that a container with a file system view of its own does not see."""
    named = plan.view.named
    unseen = _unseen_paths(plan)
    return next((path for path in unseen if not any(map(path.is_relative_to, named))), None)


def _unseen_paths(plan: LaunchPlan) -> Iterator[Path]:
    """Yields what the command names in private folders, by its path and without links."""
    view = plan.view
    seen = (*view.shown, *([plan.own_folder] if plan.own_folder is not None else []))
    home = view.hidden[0].parent if view.hidden else None
    private = (*map(Path, PRIVATE_FOLDERS), SHARED_MEMORY)
    for word in _absolute_words(plan.command):
        for path in dict.fromkeys((Path(os.path.normpath(word)), Path(os.path.realpath(word)))):
            is_hidden = any(map(path.is_relative_to, view.hidden))
            is_seen = any(map(path.is_relative_to, seen)) or (
                home is not None and path.is_relative_to(home) and not is_hidden
            )
            # The container makes its own sockets.
            is_there = os.path.isfile(path) or os.path.isdir(path)
            if _is_in(path, private) and not is_seen and is_there:
                yield path


def _absolute_words(command: Iterable[str]) -> Iterator[str]:
    """Yields absolute paths, also those in the text of `sh -c`."""
    for word in command:
        if os.path.isabs(word):
            yield word
        elif " " in word:
            # A script's own files lie right in /tmp, and in /run and the like.
            yield from (
                part
                for part in _words_of_text(word)
                if _is_in(Path(part), NAMED_FOLDERS) and Path(part).parent not in NAMED_FOLDERS
            )


def _words_of_text(text: str) -> Iterator[str]:
    """Yields the words of a shell's text without what it makes or writes itself: that is to be the
    container's own, also where a run by hand has left it on the machine."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SHELL_SIGNS)
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        words = list(lexer)
    except ValueError:  # a quotation mark is missing
        words = text.split()
    made: list[Path] = []
    program = ""
    for before, word in pairwise(["", *words]):
        is_sign = bool(word) and word[0] in _SHELL_SIGNS
        if ">" in before or (program == "mkdir" and not is_sign):
            made.append(Path(word))
        elif is_sign:
            program = ""
        else:
            program = program or word
    yield from (word for word in words if not any(map(Path(word).is_relative_to, made)))


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(folder in path.parents for folder in folders)
