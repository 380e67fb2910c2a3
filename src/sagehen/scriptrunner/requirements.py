"""What the user's code needs, in an environment shared with other jobs and with model servers."""

import logging
from collections.abc import Mapping
from pathlib import Path

from sagehen.container.environments import Environments
from sagehen.container.install import Wanted
from sagehen.container.variables import positive, seconds
from sagehen.scriptrunner.folders import Folders

__all__ = ["install"]

SECONDS = 3600.0
"""Before that, most jobs' own time is over."""
KEPT_BYTES = 10 * 2**30


def install(folders: Folders, package: bool, environ: Mapping[str, str]) -> str:
    """The interpreter of the environment, which is kept until this process ends.

    Raises RequirementsError or SettingError.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    own = Path(folders.base) / "environments"
    environments = Environments(
        folder=Path(environ.get("SAGEHEN_ENVIRONMENTS") or own),
        own_folder=own,
        most_bytes=positive(environ, "SAGEHEN_ENVIRONMENTS_BYTES") or KEPT_BYTES,
        seconds=seconds(environ, "SAGEMAKER_STARTUP_TIMEOUT") or SECONDS,
        variables=environ,
    )
    return environments.acquire(Wanted(Path(folders.code), package)).python
