"""The folders of a job's host, and the input/config files in them."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sagehen.agent.jobs.data.downloads import code_location
from sagehen.agent.jobs.metrics import check_definitions
from sagehen.base.errors import Invalid
from sagehen.base.home import Home
from sagehen.base.own_python import make_own_python, own_python
from sagehen.containers.aws_modules_path import FOLDER as AWS_MODULES
from sagehen.frame.job_specs import ChannelSpec, JobSpec
from sagehen.frame.s3_locations import parse_location

__all__ = [
    "FIRST_HOST",
    "HostPaths",
    "check_spec",
    "host_paths",
    "prepare_folders",
    "replace_python",
]

FIRST_HOST = "algo-1"
MAX_HOSTS = 100
OPT_ML = PurePosixPath("/opt/ml")

_JOB_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")
_CHANNEL_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9.\-_]{1,64}")
_RESERVED = ("input", "model", "output", "code")


@dataclass(frozen=True)
class HostPaths:
    """The folders of one host of one attempt."""

    home: Home
    spec: JobSpec
    number: int
    """from 1"""

    @property
    def host(self) -> str:
        return f"algo-{self.number}"

    @property
    def folder(self) -> Path:
        """Removed with the attempt."""
        return self.home.jobs / self.spec.attempt_id / self.host

    @property
    def base(self) -> Path:
        """`/opt/ml` in a SageMaker container."""
        return self.folder / "ml"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    @property
    def python(self) -> Path:
        """The container's own Python environment, on top of the server's."""
        return own_python(self.folder / "python")

    @property
    def code(self) -> Path:
        return self.base / "code"

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def output(self) -> Path:
        return self.base / "output" / "data"

    @property
    def failure(self) -> Path:
        return self.base / "output" / "failure"

    @property
    def config(self) -> Path:
        return self.base / "input" / "config"

    @property
    def inputs(self) -> Path:
        return self.base / "input" / "data"

    @property
    def checkpoints(self) -> Path | None:
        """The folder of checkpoints; None if the job has no CheckpointConfig."""
        checkpoint = self.spec.checkpoint
        if checkpoint is None:
            return None
        return self.base / PurePosixPath(checkpoint.local_path).relative_to(OPT_ML)

    @property
    def log(self) -> Path:
        return self.home.job_log(self.spec.job_name) / f"{self.host}.log"

    def channel(self, name: str) -> Path:
        return self.inputs / name


def host_paths(home: Home, spec: JobSpec) -> list[HostPaths]:
    return [HostPaths(home, spec, number) for number in range(1, spec.instance_count + 1)]


def check_spec(spec: JobSpec) -> None:
    """Raises Invalid for a bad file name or address."""
    if not _JOB_NAME.fullmatch(spec.job_name):
        raise Invalid(f"{spec.job_name[:100]!r} cannot be a job's name.")
    if not 1 <= spec.instance_count <= MAX_HOSTS:
        raise Invalid(f"A job has 1 to {MAX_HOSTS} hosts, not {spec.instance_count}.")
    names = [channel.name for channel in spec.channels]
    if len(set(names)) != len(names):
        raise Invalid(f"Two channels have the same name: {', '.join(sorted(names))}.")
    for channel in spec.channels:
        _check_channel(channel)
    check_definitions(spec.metric_definitions)
    code_location(spec)
    parse_location(spec.output_uri)
    if spec.checkpoint is not None:
        parse_location(spec.checkpoint.s3_uri)
        _check_checkpoints(spec.checkpoint.local_path)


def _check_channel(channel: ChannelSpec) -> None:
    if not _CHANNEL_NAME.fullmatch(channel.name):
        raise Invalid(f"{channel.name[:100]!r} cannot be a channel's name.")
    if channel.input_mode not in ("File", "FastFile"):
        raise Invalid(
            f"The channel {channel.name} has input mode {channel.input_mode}, which is not "
            "supported: use File or FastFile."
        )
    parse_location(channel.s3_uri)


def _check_checkpoints(local_path: str) -> None:
    path = PurePosixPath(local_path)
    below = path.relative_to(OPT_ML).parts if path.is_relative_to(OPT_ML) else ()
    if not below or ".." in below or below[0] in _RESERVED or "\0" in local_path:
        raise Invalid(
            f"The checkpoints' LocalPath {local_path[:200]!r} is not a folder of their own below "
            "/opt/ml, such as /opt/ml/checkpoints."
        )


GROUP = "homogeneousCluster"
"""SageMaker's name for a job without groups"""


def prepare_folders(paths: HostPaths, network_interface: str = "lo") -> None:
    """Creates folders and files, before the data comes. Blocks; raises OSError.

    Args:
        network_interface: the device by which the hosts reach each other.
    """
    folders = [paths.config, paths.base / "input" / "data", paths.model, paths.output, paths.code]
    folders += [paths.channel(channel.name) for channel in paths.spec.channels]
    if paths.checkpoints is not None:
        folders.append(paths.checkpoints)
    paths.folder.mkdir(mode=0o700, parents=True)
    paths.tmp.mkdir()
    make_own_python(paths.folder / "python", last=[AWS_MODULES])
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in _configs(paths, network_interface).items():
        (paths.config / name).write_text(json.dumps(content))


def replace_python(paths: HostPaths, below: str) -> None:
    """Puts the host's Python over another than the server's. Blocks; raises OSError."""
    shutil.rmtree(paths.folder / "python")
    make_own_python(paths.folder / "python", Path(below), last=[AWS_MODULES])


def _configs(paths: HostPaths, network_interface: str) -> dict[str, dict[str, Any]]:
    spec = paths.spec
    return {
        "hyperparameters.json": spec.hyperparameters,
        "inputdataconfig.json": {channel.name: _channel(channel) for channel in spec.channels},
        "resourceconfig.json": _resources(spec, paths.host, network_interface),
    }


def _channel(channel: ChannelSpec) -> dict[str, str]:
    config = {
        "TrainingInputMode": channel.input_mode,
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapper,
    }
    return (
        config if channel.content_type is None else {"ContentType": channel.content_type, **config}
    )


def _resources(spec: JobSpec, host: str, network_interface: str) -> dict[str, Any]:
    hosts = sorted(f"algo-{number}" for number in range(1, spec.instance_count + 1))
    group = {
        "instance_group_name": GROUP,
        "instance_type": spec.instance_type,
        "hosts": hosts,
    }
    return {
        "current_host": host,
        "current_instance_type": spec.instance_type,
        "current_group_name": GROUP,
        "hosts": hosts,
        "instance_groups": [group],
        "network_interface_name": network_interface,
    }
