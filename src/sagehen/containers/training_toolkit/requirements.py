"""Installs the user's requirements into a shared environment."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from sagehen.base.own_python import put_over
from sagehen.containers.aws_modules_path import FOLDER as AWS_MODULES
from sagehen.containers.python_envs.environments import Environments
from sagehen.containers.python_envs.install import EnvironmentSpec
from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.variables import positive, seconds

__all__ = ["install"]

INSTALL_SECONDS = 3600.0
"""most jobs' own limit is shorter"""
CACHE_BYTES = 10 * 2**30


def install(
    folders: Folders, package: bool, environ: Mapping[str, str], container_python: str | None
) -> str:
    """Returns the interpreter; the environment is kept until this process ends.

    Args:
        container_python: the container's interpreter, which then sees the packages.

    Raises RequirementsError or SettingError.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    unshared = Path(folders.base) / "environments"
    environments = Environments(
        folder=Path(environ.get("SAGEHEN_ENVIRONMENTS") or unshared),
        own_folder=unshared,
        max_bytes=positive(environ, "SAGEHEN_ENVIRONMENTS_BYTES") or CACHE_BYTES,
        seconds=seconds(environ, "SAGEMAKER_STARTUP_TIMEOUT") or INSTALL_SECONDS,
        variables=environ,
    )
    installed = environments.acquire(EnvironmentSpec(Path(folders.code), package)).python
    if container_python is not None and installed != sys.executable:
        put_over(Path(container_python), Path(installed), last=[AWS_MODULES])
    return installed
