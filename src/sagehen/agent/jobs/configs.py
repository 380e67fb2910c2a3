"""What a container reads of its job: the folders of /opt/ml and the files of input/config."""

import json
from typing import Any

from sagehen.agent.jobs.place import HostPlace
from sagehen.domain.jobs import ChannelSpec, JobSpec

__all__ = ["prepare_place"]

NETWORK_INTERFACE = "lo"
"""All hosts are on this machine."""
GROUP = "homogeneousCluster"
"""What SageMaker calls the instances of a job that has no groups."""


def prepare_place(place: HostPlace) -> None:
    """Make a host's folders and files, before its data comes. Blocks; raises OSError."""
    folders = [place.config, place.base / "input" / "data", place.model, place.output, place.code]
    folders += [place.channel(channel.name) for channel in place.spec.channels]
    if place.checkpoints is not None:
        folders.append(place.checkpoints)
    place.folder.mkdir(mode=0o700, parents=True)
    place.tmp.mkdir()
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in _configs(place).items():
        (place.config / name).write_text(json.dumps(content))


def _configs(place: HostPlace) -> dict[str, dict[str, Any]]:
    spec = place.spec
    return {
        "hyperparameters.json": spec.hyperparameters,
        "inputdataconfig.json": {channel.name: _channel(channel) for channel in spec.channels},
        "resourceconfig.json": _resources(spec, place.host),
    }


def _channel(channel: ChannelSpec) -> dict[str, str]:
    said = {
        "TrainingInputMode": channel.input_mode,
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapper,
    }
    return said if channel.content_type is None else {"ContentType": channel.content_type, **said}


def _resources(spec: JobSpec, host: str) -> dict[str, Any]:
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
        "network_interface_name": NETWORK_INTERFACE,
    }
