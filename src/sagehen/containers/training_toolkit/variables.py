"""The SM_* variables that AWS's toolkit gives to scripts."""

import json
import os
import re
from collections.abc import Mapping

from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.training_toolkit.hyperparameters import Parameters, to_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["make_variables"]

ONE_GROUP = "homogeneousCluster"
_GPU = re.compile(r"nvidia\d+")


def make_variables(
    folders: Folders,
    parameters: Parameters,
    program: str,
    log_level: int,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Returns the SM_ variables and the toolkit's other ones. Raises CannotRun."""
    resources = folders.read_config("resourceconfig.json")
    channels = folders.read_config("inputdataconfig.json")
    described = {
        **_describe_paths(folders, channels),
        **_describe_hosts(resources),
        **_describe_program(folders, parameters, program),
        "framework_module": environ.get("SAGEMAKER_TRAINING_MODULE"),
        "job_name": environ.get("TRAINING_JOB_NAME"),
        "log_level": log_level,
        "num_cpus": len(os.sched_getaffinity(0)),
        "num_gpus": _count_gpus(environ),
        "num_neurons": 0,
    }
    named = {
        **{name: described[name] for name in _ALSO_ALONE},
        "channels": sorted(channels),
        "framework_params": parameters.of_framework,
        "hps": parameters.user,
        "training_env": described,
        "user_args": to_arguments(parameters.user),
        **{f"channel_{name}": folders.channel(name) for name in channels},
        **{f"hp_{name}": value for name, value in parameters.user.items()},
    }
    return {f"SM_{name.upper()}": _text(value) for name, value in named.items()} | {
        "CURRENT_HOST": resources["current_host"],
        "SAGEMAKER_JOB_NAME": parameters.text("sagemaker_job_name") or "",
        "SAGEMAKER_REGION": parameters.text("sagemaker_region") or environ.get("AWS_REGION", ""),
    }


_ALSO_ALONE = (
    "current_host",
    "current_instance_group",
    "current_instance_group_hosts",
    "current_instance_type",
    "distribution_instance_groups",
    "framework_module",
    "hosts",
    "input_config_dir",
    "input_data_config",
    "input_dir",
    "instance_groups",
    "instance_groups_dict",
    "is_hetero",
    "log_level",
    "model_dir",
    "module_dir",
    "module_name",
    "network_interface_name",
    "num_cpus",
    "num_gpus",
    "num_neurons",
    "output_data_dir",
    "output_dir",
    "output_intermediate_dir",
    "resource_config",
    "user_entry_point",
)


def _describe_paths(folders: Folders, channels: "Mapping[str, Any]") -> "dict[str, Any]":
    return {
        "channel_input_dirs": {name: folders.channel(name) for name in channels},
        "input_config_dir": folders.config,
        "input_data_config": channels,
        "input_dir": folders.input,
        "model_dir": folders.model,
        "output_data_dir": folders.output_data,
        "output_dir": folders.output,
        "output_intermediate_dir": folders.output_intermediate,
    }


def _describe_hosts(resources: "Mapping[str, Any]") -> "dict[str, Any]":
    groups = {group["instance_group_name"]: group for group in resources.get("instance_groups", [])}
    group = resources.get("current_group_name", ONE_GROUP)
    current, hosts = resources["current_host"], resources["hosts"]
    return {
        "current_host": current,
        "current_instance_group": group,
        "current_instance_group_hosts": groups.get(group, {}).get("hosts", []),
        "current_instance_type": resources.get("current_instance_type", "local"),
        "distribution_hosts": [] if groups else hosts,
        "distribution_instance_groups": [],
        "hosts": hosts,
        "instance_groups": list(groups),
        "instance_groups_dict": groups,
        "is_hetero": len(groups) > 1,
        "is_master": current == hosts[0],
        "master_hostname": hosts[0],
        "network_interface_name": resources.get("network_interface_name", "eth0"),
        "resource_config": resources,
        "topology": resources.get("topology", []),
    }


def _describe_program(folders: Folders, parameters: Parameters, program: str) -> "dict[str, Any]":
    return {
        "additional_framework_parameters": parameters.of_framework,
        "hyperparameters": parameters.user,
        "is_modelparallel_enabled": None,
        "is_smddpmprun_installed": False,
        "is_smddprun_installed": False,
        "module_dir": parameters.text("sagemaker_submit_directory") or folders.code,
        "module_name": program.removesuffix(".py"),
        "user_entry_point": program,
    }


def _count_gpus(environ: Mapping[str, str]) -> int:
    """Counts the container's GPUs without running nvidia-smi."""
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    try:
        return len([name for name in os.listdir("/dev") if _GPU.fullmatch(name)])
    except OSError:
        return 0


def _text(value: "Any") -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
