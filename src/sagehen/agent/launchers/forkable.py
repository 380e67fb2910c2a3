"""Decides which containers may be forked from a fork server, as pure functions.

The interpreter and the dynamic loader read some variables when a process starts, libraries read
others when they are imported, and the rest is read later. Only that rest may differ from the fork
server's. Nobody can list all that libraries read; so the rest is listed, and a container with any
other variable starts in the ordinary way.
"""

import os
from collections.abc import Collection
from typing import NamedTuple

from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.containers.modelserver.environment import THREAD_VARIABLES
from sagehen.containers.modelserver.forked import FRAMEWORKS, ROOM

__all__ = ["ForkKind", "fork_kind", "server_variables", "why_not_forkable"]

MODEL_SERVER = "sagehen.containers.modelserver"
ADAPTER = "SAGEHEN_ADAPTER"
SEARCH_PATH = "PYTHONPATH"
BATCH = "SAGEMAKER_BATCH"
"""transform jobs: XGBoost gets more threads"""
ROOM_BYTES = 6144
"""a path of 4096 bytes, and the mark of a worker"""

_LATE = frozenset(
    {
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "HF_API_TOKEN",
        "HF_MODEL_ID",
        "HF_MODEL_REVISION",
        "HF_TASK",
        "HF_TRUST_REMOTE_CODE",
        "HOME",
        "PATH",
        "TMPDIR",
    }
)
_LATE_PREFIXES = ("AWS_", "MMS_", "PIP_", "SAGEHEN_", "SAGEMAKER_", "SM_", "TS_")
"""read by the model server, by clients of AWS and by pip, when they are used"""


class ForkKind(NamedTuple):
    """The modules that a fork server imports, and its interpreter."""

    python: str
    adapter: str


def fork_kind(plan: LaunchPlan) -> ForkKind | None:
    """Returns None if no fork server can have what the plan needs."""
    adapter = plan.environment.get(ADAPTER, "")
    if plan.image is not None or plan.is_command or adapter not in FRAMEWORKS:
        return None
    python, *arguments = plan.command
    return ForkKind(python, adapter) if arguments == ["-m", MODEL_SERVER] else None


def why_not_forkable(plan: LaunchPlan, more_late: Collection[str]) -> str | None:
    """Returns why a container of a fork server's kind starts in the ordinary way.

    Args:
        more_late: variables that the user names, as only scripts read them.
    """
    if not plan.may_fork:
        return "it was forked before, and did not start"
    if plan.network is not None:
        return "it has a network of its own"
    if plan.gpus:
        return "it has GPUs"
    if BATCH in plan.environment:
        return "it is a transform job's"
    own = server_variables(plan.command[0])
    for name, value in plan.environment.items():
        if name == SEARCH_PATH:
            if _own_search(plan) is None:
                return f"{name} names more than its own folder"
        elif own.get(name) != value and not _is_late(name, more_late):
            return f"{name} may be read at the start of Python or of a library"
    missing = own.keys() - plan.environment.keys() - _OF_SERVERS
    return f"{min(missing)} is not set" if missing else None


def search_of(plan: LaunchPlan) -> list[str]:
    return _own_search(plan) or []


def _own_search(plan: LaunchPlan) -> list[str] | None:
    """Returns the folders of PYTHONPATH; None if one is not the container's own."""
    folders = list(filter(None, plan.environment.get(SEARCH_PATH, "").split(os.pathsep)))
    own = f"{plan.own_folder}/"
    return folders if all(folder.startswith(own) for folder in folders) else None


def _is_late(name: str, more: Collection[str]) -> bool:
    return name in _LATE or name in more or name.startswith(_LATE_PREFIXES)


_SERVER_ONLY = {
    # Its thread would be missing in the children, and with it what it does.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "HOME": "/nonexistent",
    ROOM: "",
}
_OF_SERVERS = frozenset({*_SERVER_ONLY, *THREAD_VARIABLES})


def server_variables(python: str) -> dict[str, str]:
    """The environment of a fork server: what its containers have, and no more."""
    return {
        "HF_HOME": os.path.expanduser("~/.cache/huggingface"),
        "LANG": "C.UTF-8",
        "PATH": f"{os.path.dirname(python)}:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        **_SERVER_ONLY,
    }
