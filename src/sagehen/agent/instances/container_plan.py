"""Plans how a container of an instance is started: folder, ports, environment, command."""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.leftovers import BASE_MARK
from sagehen.agent.instances.limits import choose_limits
from sagehen.agent.launchers.container_view import container_view
from sagehen.agent.launchers.handoff import CONTAINER_PORT
from sagehen.agent.launchers.launcher import ImagePlan, LaunchPlan, NetworkPlan
from sagehen.agent.launchers.own_network import NetworkSupport
from sagehen.base.home import Home
from sagehen.base.own_python import make_own_python, own_python, own_site
from sagehen.base.user_environment import pip_variables
from sagehen.frame.container_specs import ContainerSpec, InstanceOwner, InstanceSpec
from sagehen.frame.gpus import WHOLE, read_fraction
from sagehen.frame.images import Launch, find_launch

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = [
    "ContainerPaths",
    "PortRange",
    "Ports",
    "choose_address",
    "choose_port",
    "fraction_variables",
    "give_python",
    "plan_image",
    "plan_launch",
    "plan_network",
    "refuse_isolation",
    "runs_model_server",
]

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
        """The value of `SAGEMAKER_SAFE_PORT_RANGE`; both ends are included."""
        return f"{self.first + 1}-{self.last - 1}"


class Ports:
    """The port ranges of this node's containers."""

    def __init__(self) -> None:
        self._claims: dict[PortRange, socket.socket] = {}
        self._next = FIRST

    def take(self) -> PortRange:
        """Raises CannotStart if none is free."""
        for _ in range(FIRST, LAST, PER_CONTAINER):
            ports = PortRange(self._next, self._next + PER_CONTAINER - 1)
            # Go on upwards: ports may be unusable for a while after use.
            self._next = FIRST if ports.last >= LAST else ports.last + 1
            with contextlib.suppress(OSError):
                self._claims[ports] = _claim(ports)
                return ports
        raise CannotStart(f"no {PER_CONTAINER} ports in a row are free from {FIRST} to {LAST}")

    def release(self, ports: PortRange) -> None:
        claim = self._claims.pop(ports, None)
        if claim is not None:
            claim.close()


def _claim(ports: PortRange) -> socket.socket:
    """Binds the last port. Raises OSError if any port is in use."""
    with contextlib.ExitStack() as on_failure:
        claim = on_failure.enter_context(socket.socket())
        claim.bind(("", ports.last))
        for port in range(ports.first, ports.last):
            with socket.socket() as probe:
                probe.bind(("", port))
        on_failure.pop_all()
    return claim


STARTUP_MARGIN_SECONDS = 5
SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ContainerPaths:
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
        """The folder of user code that is not in the model's archive."""
        return self.base / "code"

    @property
    def python(self) -> Path:
        """The environment of what the container's scripts install by pip."""
        return self.folder / "python"

    @property
    def code_url(self) -> str | None:
        """The archive in S3 that the SageMaker SDK names for some frameworks."""
        url = self.container.environment.get(SUBMIT_DIRECTORY, "")
        return url if url.startswith("s3://") else None

    @property
    def socket(self) -> Path:
        suffix = "" if self.number == 1 else f"-{self.number}"
        # In a folder of its own: the container sees nothing else of `run`.
        return self.home.run / f"{self.spec.instance_id}{suffix}" / "http.sock"

    @property
    def log(self) -> Path:
        spec = self.spec
        if spec.owner is InstanceOwner.TRANSFORM_JOB:
            # Jobs have one container an instance: the instance names its log.
            return self.home.transform_log(spec.endpoint_name) / f"{spec.instance_id}.log"
        folder = self.home.logs / "endpoints" / spec.endpoint_name / spec.variant_name
        return folder / spec.instance_id / f"{self.container.hostname}.log"


def runs_model_server(paths: ContainerPaths, settings: "Settings") -> bool:
    launch = find_launch(paths.container.image, settings.images, settings.launcher)
    return launch is not None and launch.adapter is not None


def give_python(paths: ContainerPaths, python: str) -> None:
    """Makes an environment over `python`: pip would change the server's. Raises OSError."""
    make_own_python(paths.python, None if python == sys.executable else Path(python))


def plan_network(
    paths: ContainerPaths, launch: Launch, support: NetworkSupport, settings: "Settings"
) -> NetworkPlan | None:
    """Returns None for the machine's network.

    Raises CannotStart: the model asks for network isolation, and it cannot be had.
    """
    is_ours = launch.adapter is not None
    handoff = None if is_ours else paths.socket
    if paths.container.network_isolation:
        if support.missing is None:
            return NetworkPlan(outgoing=False, handoff=handoff)
        if settings.network_isolation == "required":
            raise CannotStart(refuse_isolation(support.missing))
    elif not is_ours and settings.container_network == "own" and support.missing_outgoing is None:
        port = server_port(paths.home, settings)
        return NetworkPlan(outgoing=True, handoff=handoff, server_port=port)
    return None


def refuse_isolation(reason: str) -> str:
    return (
        f"EnableNetworkIsolation asks for a container without a network, which this machine does "
        f"not let this user start ({reason}). Run the server as root, or allow unprivileged user "
        'namespaces; or set network_isolation = "where_possible", and its code has the network of '
        "the machine"
    )


def server_port(home: Home, settings: "Settings") -> int:
    """Returns 0 if containers need their own port of that number."""
    try:
        port = urlsplit(home.address.read_text().strip()).port
    except (OSError, ValueError):
        port = None
    port = port or settings.port
    return 0 if port == CONTAINER_PORT else port


def choose_address(
    paths: ContainerPaths, launch: Launch, ports: PortRange, network: NetworkPlan | None = None
) -> str:
    if launch.adapter is not None or network is not None:
        paths.socket.parent.mkdir(mode=0o700, exist_ok=True)
    if launch.adapter is not None:
        paths.socket.unlink(missing_ok=True)
        return f"link:{paths.socket}"
    if network is not None:
        return f"handoff:{paths.socket}"
    return f"tcp:127.0.0.1:{ports.first}"


def choose_port(address: str) -> int | None:
    """The port on which a container at `address` must listen; None for a Unix socket."""
    if address.startswith("handoff:"):
        return CONTAINER_PORT
    return int(address.rpartition(":")[2]) if address.startswith("tcp:") else None


def plan_launch(
    paths: ContainerPaths,
    launch: Launch,
    address: str,
    ports: PortRange,
    settings: "Settings",
    network: NetworkPlan | None = None,
    python: str = sys.executable,
) -> LaunchPlan:
    """`python` runs the model server, and comes first in the PATH."""
    if launch.adapter is not None:
        program = _model_server(paths, launch.adapter, address, settings, python)
    else:
        program = _user_command(paths, launch.command or (), address)
    environment = {**program.suggested, **_environment(paths, settings, python), **program.fixed}
    return LaunchPlan(
        instance_id=paths.spec.instance_id,
        name=paths.container.hostname,
        command=program.command,
        environment=environment | {"SAGEMAKER_SAFE_PORT_RANGE": ports.spare},
        folder=program.folder,
        log=paths.log,
        log_bytes=settings.container_log_bytes,
        limits=choose_limits(paths.spec.instance_type, settings),
        base=paths.base,
        own_folder=paths.folder,
        view=container_view(paths.home, settings, paths.folder, paths.socket.parent),
        is_command=launch.adapter is None,
        network=network,
    )


def plan_image(paths: ContainerPaths, settings: "Settings") -> LaunchPlan:
    """Plans a container of the image itself, which has nothing of this machine's."""
    container, spec = paths.container, paths.spec
    suggested = {**_regions(settings), **fraction_variables(container.environment)}
    environment = suggested | _chosen(container)
    if container.multi_model:
        environment["SAGEMAKER_MULTI_MODEL"] = "true"
    return LaunchPlan(
        instance_id=spec.instance_id,
        name=container.hostname,
        command=("serve",),
        environment=environment,
        folder=paths.folder,
        log=paths.log,
        log_bytes=settings.container_log_bytes,
        limits=choose_limits(spec.instance_type, settings),
        base=paths.base,
        image=ImagePlan(
            uri=container.image,
            hostname=container.hostname,
            serves=True,
            number=paths.number,
            containers=len(spec.containers),
            multi_model=container.multi_model,
            isolated=container.network_isolation,
            socket=paths.socket,
            labels={
                "sagehen.endpoint": spec.endpoint_name,
                "sagehen.variant": spec.variant_name,
                "sagehen.instance": spec.instance_id,
            },
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Program:
    command: tuple[str, ...]
    folder: Path
    suggested: Mapping[str, str]
    fixed: Mapping[str, str]


def _model_server(
    paths: ContainerPaths, adapter: str, address: str, settings: "Settings", python: str
) -> _Program:
    fixed = {
        "SAGEHEN_ADAPTER": adapter,
        "SAGEHEN_BIND": f"unix:{paths.socket}",
        "SAGEHEN_ENVIRONMENTS": str(paths.home.environments),
        "SAGEHEN_ENVIRONMENTS_BYTES": str(settings.environment_cache_bytes),
    }
    if paths.code_url is not None:
        fixed[SUBMIT_DIRECTORY] = str(paths.code)
    return _Program(
        command=(python, "-m", "sagehen.containers.modelserver"),
        folder=paths.folder,
        suggested=_installer_variables(paths) | {"PIP_PYTHON": str(own_python(paths.python))},
        fixed=fixed | {"PYTHONPATH": _search_path(paths)},
    )


def _search_path(paths: ContainerPaths) -> str:
    """Returns the folder of what scripts install, before those that the user names."""
    named = paths.container.environment.get("PYTHONPATH")
    return os.pathsep.join(filter(None, (str(own_site(paths.python)), named)))


def _user_command(paths: ContainerPaths, command: tuple[str, ...], address: str) -> _Program:
    return _Program(
        command=command,
        # A command in sagehen.toml may name a script beside it.
        folder=paths.home.path,
        # Requests run in parallel: more threads in each would slow the others down. Our model
        # server sets its own number.
        suggested={"OMP_NUM_THREADS": "1"},
        fixed={"SAGEMAKER_BIND_TO_PORT": str(choose_port(address))},
    )


def fraction_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the frameworks' own variables for a share of a GPU's memory. PyTorch has none: our
    model server calls its function. Raises Invalid."""
    fraction = read_fraction(environment)
    if fraction is None or fraction == WHOLE:
        return {}
    return {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # TensorFlow takes all memory otherwise
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{float(fraction):g}",  # JAX: 0.75 otherwise
    }


def _installer_variables(paths: ContainerPaths) -> dict[str, str]:
    # Only the installer knows why it was slow, so it must give up first.
    seconds = max(1, int(paths.spec.startup_timeout_seconds) - STARTUP_MARGIN_SECONDS)
    return {"SAGEMAKER_STARTUP_TIMEOUT": str(seconds), **pip_variables()}


def _environment(paths: ContainerPaths, settings: "Settings", python: str) -> dict[str, str]:
    """Precedence: fixed values, the user's variables, our defaults."""
    container = paths.container
    suggested = {
        "PATH": f"{os.path.dirname(python)}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "HOME": str(paths.folder),
        "TMPDIR": str(paths.folder / "tmp"),
        "PYTHONUNBUFFERED": "1",
        # shared by all containers
        "HF_HOME": os.path.expanduser("~/.cache/huggingface"),
        # The gateway must give up first.
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": f"{settings.invocation_timeout_seconds + 1:g}",
        **_regions(settings),
        **fraction_variables(container.environment),
    }
    fixed = {
        BASE_MARK: str(paths.base),
        "SAGEMAKER_BASE_DIR": str(paths.base),
        "SM_MODEL_DIR": str(paths.base / "model"),
    }
    if container.multi_model:
        fixed["SAGEMAKER_MULTI_MODEL"] = "true"
    return suggested | _chosen(container) | fixed


def _regions(settings: "Settings") -> dict[str, str]:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "SAGEMAKER_REGION")
    return dict.fromkeys(names, settings.region)


def _chosen(container: ContainerSpec) -> dict[str, str]:
    chosen = dict(container.environment)
    chosen.pop("SAGEMAKER_MULTI_MODEL", None)  # the model's Mode decides
    return chosen
