"""Where one host of a training job lives, and which specs can have such a place."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sagehen.agent.jobs.code import code_location
from sagehen.agent.jobs.metrics import check_definitions
from sagehen.container.own_python import own_python
from sagehen.domain.jobs import ChannelSpec, JobSpec
from sagehen.domain.locations import parse_location
from sagehen.errors import Invalid
from sagehen.home import Home

__all__ = ["FIRST_HOST", "HostPlace", "check_spec", "host_places"]

FIRST_HOST = "algo-1"
MOST_HOSTS = 100
OPT_ML = PurePosixPath("/opt/ml")

_JOB_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")
_CHANNEL_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9.\-_]{1,64}")
_OURS = ("input", "model", "output", "code")
"""Folders below /opt/ml that have another purpose than checkpoints."""


@dataclass(frozen=True)
class HostPlace:
    """The folders of one host of one attempt."""

    home: Home
    spec: JobSpec
    number: int
    """From 1."""

    @property
    def host(self) -> str:
        return f"algo-{self.number}"

    @property
    def folder(self) -> Path:
        """The host's own; it goes with the attempt."""
        return self.home.jobs / self.spec.attempt_id / self.host

    @property
    def base(self) -> Path:
        """What is `/opt/ml` in a container of SageMaker's."""
        return self.folder / "ml"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def hosts(self) -> Path:
        """What is `/etc/hosts` in its container."""
        return self.folder / "hosts"

    @property
    def python(self) -> Path:
        """The container's own, over the server's."""
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
        """Of all channels."""
        return self.base / "input" / "data"

    @property
    def checkpoints(self) -> Path | None:
        """None where the job keeps none."""
        checkpoint = self.spec.checkpoint
        if checkpoint is None:
            return None
        return self.base / PurePosixPath(checkpoint.local_path).relative_to(OPT_ML)

    @property
    def log(self) -> Path:
        return self.home.job_log(self.spec.job_name) / f"{self.host}.log"

    def channel(self, name: str) -> Path:
        return self.inputs / name


def host_places(home: Home, spec: JobSpec) -> list[HostPlace]:
    """All of them, in the order of their numbers."""
    return [HostPlace(home, spec, number) for number in range(1, spec.instance_count + 1)]


def check_spec(spec: JobSpec) -> None:
    """Whether it can have places.

    Raises:
        Invalid: a name in it cannot be a file's, or an address is none.
    """
    if not _JOB_NAME.fullmatch(spec.job_name):
        raise Invalid(f"{spec.job_name[:100]!r} cannot be a job's name.")
    if not 1 <= spec.instance_count <= MOST_HOSTS:
        raise Invalid(f"A job has 1 to {MOST_HOSTS} hosts, not {spec.instance_count}.")
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
    if not below or ".." in below or below[0] in _OURS or "\0" in local_path:
        raise Invalid(
            f"The checkpoints' LocalPath {local_path[:200]!r} is not a folder of their own below "
            "/opt/ml, such as /opt/ml/checkpoints."
        )
