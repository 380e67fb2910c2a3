"""Reads the user's configuration of AWS clients, of pip and of CUDA."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ClientChoices",
    "client_choices",
    "client_variables",
    "cuda_devices",
    "docker_host",
    "mps_folder",
    "pip_variables",
]

_STRONGER = re.compile(
    r"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS|AWS_USE_FIPS_ENDPOINT|AWS_ENDPOINT_URL_[A-Z0-9_]+"
)
"""A shell evaluates these names: they hold nothing else that the environment may hold."""
_SDK_CONFIGURATION = "~/.config/sagemaker/config.yaml"

_MPS_FOLDER = "/tmp/nvidia-mps"
"""where CUDA looks by default"""
_PIP_FILES = ("~/.config/pip/pip.conf", "~/.pip/pip.conf")
_PIP_FROM = {
    "PIP_PROXY": ("https_proxy", "HTTPS_PROXY"),
    "PIP_CERT": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}


def client_variables() -> tuple[str, str] | None:
    """Returns the URL and region that AWS clients use; None where no endpoint is set."""
    url = os.environ.get("AWS_ENDPOINT_URL")
    regions = (os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return (url, next(filter(None, regions), "us-east-1")) if url else None


@dataclass(frozen=True)
class ClientChoices:
    """The user's configuration that affects the server's address."""

    stronger: tuple[str, ...]
    """variables that override or contradict AWS_ENDPOINT_URL"""
    data_path: tuple[str, ...]
    """folders that botocore reads before its own"""
    sdk_configuration: str | None
    """the SageMaker SDK's file, if set"""
    hidden_configuration: Path | None
    """the SDK's default file, if present"""


def client_choices(environ: Mapping[str, str] = os.environ) -> ClientChoices:
    stronger = filter(_STRONGER.fullmatch, environ)
    file = Path(_SDK_CONFIGURATION).expanduser()
    return ClientChoices(
        stronger=tuple(sorted(stronger)),
        data_path=tuple(filter(None, environ.get("AWS_DATA_PATH", "").split(os.pathsep))),
        sdk_configuration=environ.get("SAGEMAKER_USER_CONFIG_OVERRIDE") or None,
        hidden_configuration=file if file.is_file() else None,
    )


def docker_host(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def pip_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns pip's configuration as PIP_ variables, for containers, which have another home and
    none of the user's variables."""
    variables = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    for variable, sources in _PIP_FROM.items():
        values = [environ[name] for name in sources if environ.get(name)]
        if values:
            variables.setdefault(variable, values[0])
    files = [Path(name).expanduser() for name in _PIP_FILES]
    for file in files:
        if file.is_file():
            variables.setdefault("PIP_CONFIG_FILE", str(file))
    return variables


def cuda_devices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Returns CUDA_VISIBLE_DEVICES, to which GPU programs of this user are limited; None where it
    is not set."""
    devices = environ.get("CUDA_VISIBLE_DEVICES")
    if devices is None:
        return None
    return tuple(device.strip() for device in devices.split(",") if device.strip())


def mps_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the folder of this user's CUDA MPS daemon; None if none runs."""
    folder = Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS_FOLDER)
    return folder if (folder / "control").exists() else None
