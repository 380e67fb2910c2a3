"""Plans how a job's container is started: command, environment, limits."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.agent.instances.container_plan import SYSTEM_PATH, fraction_variables
from sagehen.agent.instances.leftovers import BASE_MARK
from sagehen.agent.instances.limits import choose_limits
from sagehen.agent.jobs.failures import JobFailed
from sagehen.agent.jobs.host_folders import FIRST_HOST, HostPaths
from sagehen.agent.jobs.network import SHARED_ADDRESS
from sagehen.agent.launchers.container_view import container_view
from sagehen.agent.launchers.launcher import ImagePlan, LaunchPlan
from sagehen.base.address import client_url
from sagehen.base.credentials import load_credentials
from sagehen.base.home import Home
from sagehen.base.user_environment import pip_variables
from sagehen.frame.images import find_launch
from sagehen.frame.job_specs import JobSpec

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["PROGRAM", "is_image", "network_interface", "plan_job_launch"]

PROGRAM = "sagemaker_program"
"""names the script for our training toolkit"""


def plan_job_launch(
    paths: HostPaths,
    settings: "Settings",
    base: Path,
    master_port: int,
    gpus: tuple[str, ...] | None = None,
    python: str = sys.executable,
) -> LaunchPlan:
    """Reads two small files.

    Args:
        base: the container's path of `place.base`.
        master_port: for the first host.
        gpus: as in LaunchPlan.
        python: runs the training toolkit; the host's own Python is on top of it.

    Raises:
        JobFailed: no program is named.
        HomeError: there are no access keys.
    """
    spec = paths.spec
    if is_image(spec, settings):
        return replace(_plan_image(paths, settings), gpus=gpus)
    command, folder = _command(paths, settings, python)
    return LaunchPlan(
        instance_id=f"{spec.attempt_id}-{paths.host}",
        name=paths.host,
        command=command,
        environment=_environment(paths, settings, base, master_port, python),
        folder=folder,
        log=paths.log,
        log_bytes=settings.container_log_bytes,
        limits=choose_limits(spec.instance_type, settings),
        base=paths.base,
        hosts=paths.hosts,
        gpus=gpus,
        own_folder=paths.folder,
        view=container_view(paths.home, settings, paths.folder),
    )


def is_image(spec: JobSpec, settings: "Settings") -> bool:
    """Whether the docker launcher runs the job's image itself."""
    launch = find_launch(spec.image, settings.images, settings.launcher)
    return launch is not None and launch.docker


def network_interface(spec: JobSpec, settings: "Settings") -> str:
    """The device by which a job's hosts reach each other."""
    return "eth0" if is_image(spec, settings) and not spec.network_isolation else "lo"


def _plan_image(paths: HostPaths, settings: "Settings") -> LaunchPlan:
    """Plans a container of the image itself, which has nothing of this machine's."""
    spec = paths.spec
    # SageMaker's argument, unless the job has its own.
    command = spec.arguments if spec.entrypoint or spec.arguments else ("train",)
    access = {} if spec.network_isolation else _access(paths.home, settings)
    suggested = {
        "AWS_DEFAULT_REGION": settings.region,
        "SAGEMAKER_REGION": settings.region,
        **fraction_variables(spec.environment),
        **access,
    }
    return LaunchPlan(
        instance_id=f"{spec.attempt_id}-{paths.host}",
        name=paths.host,
        command=command,
        environment=suggested | spec.environment | _identity(spec, settings),
        folder=paths.folder,
        log=paths.log,
        log_bytes=settings.container_log_bytes,
        limits=choose_limits(spec.instance_type, settings),
        base=paths.base,
        image=ImagePlan(
            uri=spec.image,
            hostname=paths.host,
            entrypoint=spec.entrypoint,
            number=paths.number,
            containers=spec.instance_count,
            isolated=spec.network_isolation,
            peers=spec.attempt_id if spec.instance_count > 1 else None,
            server_url=access.get("AWS_ENDPOINT_URL"),
            labels={"sagehen.training-job": spec.job_name, "sagehen.host": paths.host},
        ),
    )


def _identity(spec: JobSpec, settings: "Settings") -> dict[str, str]:
    return {
        "TRAINING_JOB_NAME": spec.job_name,
        "TRAINING_JOB_ARN": spec.job_arn,
        "AWS_REGION": settings.region,
    }


def _command(paths: HostPaths, settings: "Settings", python: str) -> tuple[tuple[str, ...], Path]:
    spec = paths.spec
    if spec.entrypoint:
        return (*spec.entrypoint, *spec.arguments), paths.code
    launch = find_launch(spec.image, settings.images, settings.launcher)
    if launch is not None and launch.command is not None:
        # The command stands for the image, without SageMaker's argument `train`; it may
        # name a file beside sagehen.toml.
        return (*launch.command, *spec.arguments), paths.home.path
    if PROGRAM in spec.hyperparameters:
        return (
            python,
            "-m",
            "sagehen.containers.training_toolkit",
            *spec.arguments,
        ), paths.code
    raise JobFailed(_no_program(spec))


def _no_program(spec: JobSpec) -> str:
    return (
        f"AlgorithmError: Nothing says which program the image {spec.image} is to run. Give the "
        f"hyperparameters {PROGRAM} and sagemaker_submit_directory (the SageMaker SDK does that "
        "for an entry_point), a ContainerEntrypoint, or the image's command under [images] in "
        "sagehen.toml."
    )


def _environment(
    paths: HostPaths, settings: "Settings", base: Path, master_port: int, python: str
) -> dict[str, str]:
    """Precedence: fixed values, the user's variables, our defaults."""
    spec = paths.spec
    suggested = {
        "PATH": f"{paths.python.parent}:{os.path.dirname(python)}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "HOME": str(paths.folder),
        "TMPDIR": str(paths.tmp),
        "PYTHONUNBUFFERED": "1",
        # shared by all jobs
        "HF_HOME": os.path.expanduser("~/.cache/huggingface"),
        "AWS_DEFAULT_REGION": settings.region,
        "SAGEMAKER_REGION": settings.region,
        # As in AWS's PyTorch containers. Host names need an own /opt/ml.
        "MASTER_ADDR": SHARED_ADDRESS if base == paths.base else FIRST_HOST,
        "MASTER_PORT": str(master_port),
        **pip_variables(),
        **fraction_variables(spec.environment),
        **({} if spec.network_isolation else _access(paths.home, settings)),
    }
    fixed = {
        BASE_MARK: str(paths.base),
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_SUBMIT_DIRECTORY": str(base / "code"),
        "SAGEHEN_PYTHON": str(paths.python),
        "SAGEHEN_ENVIRONMENTS": str(paths.home.environments),
        "SAGEHEN_ENVIRONMENTS_BYTES": str(settings.environment_cache_bytes),
        **_identity(spec, settings),
    }
    return suggested | spec.environment | fixed


def _access(home: Home, settings: "Settings") -> dict[str, str]:
    """Credentials for the script's own boto3, like a role's."""
    keys = load_credentials(home.credentials)
    try:
        address = home.address.read_text().strip()
    except FileNotFoundError:
        address = client_url(settings.host, settings.port)
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
    }
