"""Plans how a container of an instance is started: folder, ports, environment, command."""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.leftovers import BASE_MARK
from sagehen.agent.instances.limits import choose_limits
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.base.home import Home
from sagehen.base.user_environment import pip_variables
from sagehen.frame.container_specs import ContainerSpec, InstanceSpec
from sagehen.frame.images import Launch

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["ContainerPlace", "PortRange", "Ports", "choose_address", "hidden_paths", "plan_launch"]

FIRST, LAST = 12_000, 31_999
"""below the kernel's ephemeral ports"""
PER_CONTAINER = 50


@dataclass(frozen=True)
class PortRange:
    """One container's ports."""

    first: int
    """where the container listens, unless on a Unix socket"""
    last: int
    """held by the agent: other servers' agents skip the range"""

    @property
    def spare(self) -> str:
        """Both ends included, for `SAGEMAKER_SAFE_PORT_RANGE`."""
        return f"{self.first + 1}-{self.last - 1}"


class Ports:
    """The port ranges of this node's containers."""

    def __init__(self) -> None:
        self._held: dict[PortRange, socket.socket] = {}
        self._next = FIRST

    def take(self) -> PortRange:
        """Raises CannotStart if none is free."""
        for _ in range(FIRST, LAST, PER_CONTAINER):
            ports = PortRange(self._next, self._next + PER_CONTAINER - 1)
            # Go on upwards: ports may be unusable for a while after use.
            self._next = FIRST if ports.last >= LAST else ports.last + 1
            with contextlib.suppress(OSError):
                self._held[ports] = _claim(ports)
                return ports
        raise CannotStart(f"no {PER_CONTAINER} ports in a row are free from {FIRST} to {LAST}")

    def give_back(self, ports: PortRange) -> None:
        held = self._held.pop(ports, None)
        if held is not None:
            held.close()


def _claim(ports: PortRange) -> socket.socket:
    """Binds the last port. Raises OSError if any port is in use."""
    with contextlib.ExitStack() as on_failure:
        held = on_failure.enter_context(socket.socket())
        held.bind(("", ports.last))
        for port in range(ports.first, ports.last):
            with socket.socket() as probe:
                probe.bind(("", port))
        on_failure.pop_all()
    return held


STARTUP_MARGIN_SECONDS = 5
SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ContainerPlace:
    """The folders of one container of an instance."""

    home: Home
    spec: InstanceSpec
    number: int
    """from 1, in pipeline order"""

    @property
    def container(self) -> ContainerSpec:
        return self.spec.containers[self.number - 1]

    @property
    def folder(self) -> Path:
        return self.home.instances / self.spec.instance_id / self.container.hostname

    @property
    def base(self) -> Path:
        """`/opt/ml` in a SageMaker container."""
        return self.folder / "ml"

    @property
    def code(self) -> Path:
        """For user code outside the model."""
        return self.base / "code"

    @property
    def code_url(self) -> str | None:
        """The archive in S3 that the SageMaker SDK names for some frameworks."""
        named = self.container.environment.get(SUBMIT_DIRECTORY, "")
        return named if named.startswith("s3://") and not self.container.multi_model else None

    @property
    def socket(self) -> Path:
        suffix = "" if self.number == 1 else f"-{self.number}"
        return self.home.run / f"{self.spec.instance_id}{suffix}.sock"

    @property
    def log(self) -> Path:
        spec = self.spec
        folder = self.home.logs / "endpoints" / spec.endpoint_name / spec.variant_name
        return folder / spec.instance_id / f"{self.container.hostname}.log"


def choose_address(place: ContainerPlace, launch: Launch, ports: PortRange) -> str:
    if launch.adapter is not None:
        place.socket.unlink(missing_ok=True)
        return f"unix:{place.socket}"
    return f"tcp:127.0.0.1:{ports.first}"


def plan_launch(
    place: ContainerPlace, launch: Launch, address: str, ports: PortRange, settings: "Settings"
) -> LaunchPlan:
    if launch.adapter is not None:
        program = _model_server(place, launch.adapter, address, settings)
    else:
        program = _program_of_users(place, launch.command or (), address)
    environment = {**program.suggested, **_environment(place, settings), **program.fixed}
    return LaunchPlan(
        instance_id=place.spec.instance_id,
        name=place.container.hostname,
        command=program.command,
        environment=environment | {"SAGEMAKER_SAFE_PORT_RANGE": ports.spare},
        folder=program.folder,
        log=place.log,
        log_bytes=settings.container_log_bytes,
        limits=choose_limits(place.spec.instance_type, settings),
        base=place.base,
        hidden=hidden_paths(place.home, settings) if place.container.network_isolation else (),
    )


def hidden_paths(home: Home, settings: "Settings") -> tuple[Path, ...]:
    """Paths that containers with network isolation must not see."""
    file = settings.config
    return (*home.hidden, file) if file is not None and file.parent == home.path else home.hidden


@dataclass(frozen=True, kw_only=True)
class _Program:
    command: tuple[str, ...]
    folder: Path
    suggested: Mapping[str, str]
    fixed: Mapping[str, str]


def _model_server(
    place: ContainerPlace, adapter: str, address: str, settings: "Settings"
) -> _Program:
    fixed = {
        "SAGEHEN_ADAPTER": adapter,
        "SAGEHEN_BIND": address,
        "SAGEHEN_ENVIRONMENTS": str(place.home.environments),
        "SAGEHEN_ENVIRONMENTS_BYTES": str(settings.environment_cache_bytes),
    }
    if place.code_url is not None:
        fixed[SUBMIT_DIRECTORY] = str(place.code)
    return _Program(
        command=(sys.executable, "-m", "sagehen.containers.modelserver"),
        folder=place.folder,
        suggested=_for_requirements(place),
        fixed=fixed,
    )


def _program_of_users(place: ContainerPlace, command: tuple[str, ...], address: str) -> _Program:
    return _Program(
        command=command,
        # A command in sagehen.toml may name a script beside it.
        folder=place.home.path,
        # Requests run in parallel: more threads in each would slow the others down. Our model
        # server sets its own number.
        suggested={"OMP_NUM_THREADS": "1"},
        fixed={"SAGEMAKER_BIND_TO_PORT": address.rpartition(":")[2]},
    )


def _for_requirements(place: ContainerPlace) -> dict[str, str]:
    # Only the installer knows why it was slow, so it must give up first.
    seconds = max(1, int(place.spec.startup_timeout_seconds) - STARTUP_MARGIN_SECONDS)
    return {"SAGEMAKER_STARTUP_TIMEOUT": str(seconds), **pip_variables()}


def _environment(place: ContainerPlace, settings: "Settings") -> dict[str, str]:
    """Precedence: fixed values, the user's variables, our defaults."""
    container = place.container
    suggested = {
        "PATH": f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "HOME": str(place.folder),
        "TMPDIR": str(place.folder / "tmp"),
        "PYTHONUNBUFFERED": "1",
        # shared by all containers
        "HF_HOME": os.path.expanduser("~/.cache/huggingface"),
        # The gateway must give up first.
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": f"{settings.invocation_timeout_seconds + 1:g}",
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
        "SAGEMAKER_REGION": settings.region,
    }
    fixed = {
        BASE_MARK: str(place.base),
        "SAGEMAKER_BASE_DIR": str(place.base),
        "SM_MODEL_DIR": str(place.base / "model"),
    }
    given = dict(container.environment)
    given.pop("SAGEMAKER_MULTI_MODEL", None)  # the model's Mode decides
    if container.multi_model:
        fixed["SAGEMAKER_MULTI_MODEL"] = "true"
    return suggested | given | fixed
