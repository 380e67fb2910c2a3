"""Finds the user's script or its code channel (of jobs without network), and plans its command,
also by `torchrun`."""

import os
import re
import sys
from collections.abc import Mapping
from enum import Enum, auto

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.training_toolkit.hyperparameters import Parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "TORCH_DISTRIBUTED",
    "ScriptKind",
    "TrainingScript",
    "bring_code",
    "find_script",
    "plan_command",
    "plan_torchrun",
    "torch_variables",
]

_MAX_LISTED = 10


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
            f"{_list_files(folders.code)}. Have sagemaker_program (entry_point) name one of these "
            "files."
        )
    return TrainingScript(name, kind)


def plan_command(script: TrainingScript, python: str, arguments: list[str]) -> list[str]:
    """Returns a command to run in the code's folder."""
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
    try:
        with open(path, "rb") as file:
            return _describes_package(file.read())
    except (OSError, ValueError):
        return False


def _describes_package(content: bytes) -> bool:
    """Raises ValueError."""
    if sys.version_info < (3, 11):  # noqa: UP036 (tomllib is new in 3.11)
        return re.search(rb"(?m)^\s*\[(project|build-system)[].]", content) is not None
    import tomllib

    tables = tomllib.loads(content.decode())
    return "project" in tables or "build-system" in tables


def _list_files(folder: str) -> str:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[:_MAX_LISTED]) or "no files") + more


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
    except (OSError, tarfile.TarError, EOFError) as error:
        raise CannotRun(
            f"The archive {shown} (sagemaker_submit_directory) cannot be unpacked: {error}."
        ) from error


TORCH_DISTRIBUTED = "sagemaker_torch_distributed_enabled"
_TORCH_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_MASTER_PORT = "7777"


def plan_torchrun(
    script: TrainingScript,
    python: str,
    parameters: Parameters,
    resources: "Mapping[str, Any]",
    environ: Mapping[str, str],
) -> list[str]:
    """The command before the script, as AWS's toolkit builds it.

    Unlike the toolkit, always names the first host: hosts share a machine, and torchrun's default
    port is everybody's.

    Args:
        resources: `resourceconfig.json`.
        environ: the script's.

    Raises:
        CannotRun: not a Python script, or a bad number of processes.
    """
    if script.kind is not ScriptKind.PYTHON:
        raise CannotRun(
            f"{TORCH_DISTRIBUTED} is set, and {script.name} is a package or a command, which "
            "torch_distributed does not support: have sagemaker_program (entry_point) name a "
            "script, such as train.py, with no setup.py or pyproject.toml beside it."
        )
    hosts = resources["hosts"]
    options = {
        "--nnodes": str(len(hosts)),
        "--nproc_per_node": str(_processes(parameters, environ)),
        "--master_addr": environ.get("MASTER_ADDR") or hosts[0],
        "--master_port": environ.get("MASTER_PORT") or _MASTER_PORT,
        "--node_rank": str(hosts.index(resources["current_host"])),
    }
    # torchrun's program runs only the Python with torch.
    return [
        python,
        "-m",
        "torch.distributed.run",
        *(word for pair in options.items() for word in pair),
    ]


def torch_variables(resources: "Mapping[str, Any]") -> dict[str, str]:
    return {
        "NCCL_SOCKET_IFNAME": resources.get("network_interface_name", "eth0"),
        "NCCL_PROTO": "simple",
    }


def _processes(parameters: Parameters, environ: Mapping[str, str]) -> int:
    """Per host: one for each GPU, at least one."""
    count = parameters.toolkit.get(_TORCH_PROCESSES)
    if not count:
        return int(environ.get("SM_NUM_GPUS") or 0) or 1
    if type(count) is int and count > 0:  # rejects `true`: bool is a subclass of int
        return count
    raise CannotRun(f"{_TORCH_PROCESSES} is {count!r}; it must be a number from 1, such as 2.")
