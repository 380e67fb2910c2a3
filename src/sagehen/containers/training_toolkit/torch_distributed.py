"""Runs a script by `torchrun` on each host: the distribution `torch_distributed`."""

from collections.abc import Mapping

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.hyperparameters import Parameters
from sagehen.containers.training_toolkit.script import ScriptKind, TrainingScript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ENABLED", "plan_torchrun", "torch_variables"]

ENABLED = "sagemaker_torch_distributed_enabled"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
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
            f"{ENABLED} is set, and {script.name} is a package or a command, which "
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
        *(one for pair in options.items() for one in pair),
    ]


def torch_variables(resources: "Mapping[str, Any]") -> dict[str, str]:
    return {
        "NCCL_SOCKET_IFNAME": resources.get("network_interface_name", "eth0"),
        "NCCL_PROTO": "simple",
    }


def _processes(parameters: Parameters, environ: Mapping[str, str]) -> int:
    """Per host: one for each GPU, at least one."""
    given = parameters.own.get(_PROCESSES)
    if not given:
        return int(environ.get("SM_NUM_GPUS") or 0) or 1
    if type(given) is int and given > 0:  # rejects `true`: bool is a subclass of int
        return given
    raise CannotRun(f"{_PROCESSES} is {given!r}; it must be a number from 1, such as 2.")
