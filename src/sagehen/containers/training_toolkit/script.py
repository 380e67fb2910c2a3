"""Finds the user's script or its code channel (of jobs without network), and its command."""

import os
from enum import Enum, auto

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.folders import Folders

__all__ = ["ScriptKind", "TrainingScript", "bring_code", "find_script", "plan_command"]

_LISTED = 10


class ScriptKind(Enum):
    MODULE = auto()
    """a package, installed first"""
    PYTHON = auto()
    COMMAND = auto()
    """a shell script or any executable"""


class TrainingScript:
    """The user's script; `name` is its path below the code's folder."""

    def __init__(self, name: str, kind: ScriptKind) -> None:
        self.name = name
        self.kind = kind


def find_script(folders: Folders, program: str, archive: str | None) -> TrainingScript:
    """Finds `program` in the code's folder.

    Args:
        archive: for the message.

    Raises:
        CannotRun: missing, or outside the folder.
    """
    name = os.path.relpath(os.path.join(folders.code, folders.local(program)), folders.code)
    if name.startswith("..") or "\0" in name:
        raise CannotRun(f"sagemaker_program is {program!r}, which is not in the code's folder.")
    if name.endswith(".sh"):
        kind = ScriptKind.COMMAND
    elif _is_package(folders.code):
        kind = ScriptKind.MODULE
    else:
        kind = ScriptKind.PYTHON if name.endswith(".py") else ScriptKind.COMMAND
    path = os.path.join(folders.code, name)
    if not os.path.isfile(path) and kind is not ScriptKind.MODULE:
        raise CannotRun(
            f"There is no script {name!r} in {archive or 'the code folder'}, which has "
            f"{_listed(folders.code)}. Have sagemaker_program (entry_point) name one of its files."
        )
    return TrainingScript(name, kind)


def plan_command(script: TrainingScript, python: str, arguments: list[str]) -> list[str]:
    """To be run in the code's folder."""
    if script.kind is ScriptKind.MODULE:
        module = script.name.removesuffix(".py").replace(os.sep, ".")
        return [python, "-m", module, *arguments]
    if script.kind is ScriptKind.PYTHON:
        return [python, script.name, *arguments]
    return [f"./{script.name}", *arguments]


def _is_package(folder: str) -> bool:
    """Looks for a setup.py, or a pyproject.toml with a build system or name."""
    if os.path.isfile(os.path.join(folder, "setup.py")):
        return True
    path = os.path.join(folder, "pyproject.toml")
    if not os.path.isfile(path):
        return False
    import tomllib

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError):
        return False
    return "project" in found or "build-system" in found


def _listed(folder: str) -> str:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "no files") + more


def bring_code(folders: Folders, submitted: str | None) -> None:
    """Brings the code into its folder; code from S3 is there already.

    Args:
        submitted: sagemaker_submit_directory.

    Raises:
        CannotRun: no code, or a bad archive.
    """
    os.makedirs(folders.code, exist_ok=True)
    if os.listdir(folders.code):
        return
    if submitted is None:
        raise CannotRun(
            "The hyperparameter sagemaker_submit_directory is missing: it names the archive with "
            "the script, s3://BUCKET/KEY.tar.gz. Estimators with an entry_point make it."
        )
    if submitted.startswith("s3://"):
        raise CannotRun(f"The archive {submitted} (sagemaker_submit_directory) has no files.")
    path = folders.local(submitted)
    if os.path.isdir(path):
        import shutil

        shutil.copytree(path, folders.code, dirs_exist_ok=True)
    else:
        _unpack(path, folders.code, submitted)


def _unpack(path: str, folder: str, shown: str) -> None:
    import tarfile

    try:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, EOFError) as problem:
        raise CannotRun(
            f"The archive {shown} (sagemaker_submit_directory) cannot be unpacked: {problem}."
        ) from problem
