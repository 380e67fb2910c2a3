"""The interface of launchers, which start containers."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sagehen.agent.instances.limits import NO_LIMITS, LimitHits, Limits

__all__ = [
    "IMAGE_BASE",
    "NO_VIEW",
    "ImagePlan",
    "LaunchPlan",
    "Launcher",
    "NetworkPlan",
    "Process",
    "View",
]

IMAGE_BASE = Path("/opt/ml")
"""where an image's container has the plan's `base`"""


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """The image of a container that an engine runs; the plan's command is its argument."""

    uri: str
    """as given to SageMaker's API"""
    hostname: str
    entrypoint: tuple[str, ...] = ()
    """empty: the image's own"""
    serves: bool = False
    """listens on a port"""
    number: int = 1
    """among the containers of its instance or job, from 1"""
    containers: int = 1
    """of its instance or job"""
    multi_model: bool = False
    isolated: bool = False
    """without a network"""
    socket: Path | None = None
    """made to reach a container without a network"""
    peers: str | None = None
    """the job whose other hosts the container reaches by their names"""
    server_url: str | None = None
    """this server as programs of this machine reach it; given to the container as it does"""
    labels: dict[str, str] = field(default_factory=dict)
    """say what the container is for"""


@dataclass(frozen=True, kw_only=True)
class View:
    """Paths of the machine that a container sees or not, beside those of `LaunchPlan`. None need
    exist."""

    hidden: tuple[Path, ...] = ()
    """not there; all in one folder, which becomes read-only"""
    emptied: tuple[Path, ...] = ()
    """folders that are empty"""
    shown: tuple[Path, ...] = ()
    """seen though they lie in a hidden, emptied or private folder"""
    named: tuple[Path, ...] = ()
    """seen, but read-only: the command names what lies in these paths of private folders"""


NO_VIEW = View()


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """A container's own network, in which it listens on port 8080 whatever others do."""

    outgoing: bool
    """to all that the machine reaches; otherwise the container has the loopback device only"""
    handoff: Path | None = None
    """a Unix socket, through which port 8080 is reached as `handoff:PATH`"""
    server_port: int = 0
    """of this server: at 127.0.0.1 in the container too; 0 for none"""
    shared_with: int | None = None
    """PID of a container whose network this one joins, instead of an own"""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """One container, ready to be started."""

    instance_id: str
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    """complete: nothing is inherited"""
    folder: Path
    log: Path
    """receives stdout and stderr, appended"""
    log_bytes: int
    """size at which the log is rotated; one old file is kept"""
    limits: Limits = NO_LIMITS
    """shared by all containers of the instance"""
    listener: Callable[[bytes], None] | None = None
    """called in a thread with all output, and b"" at the end"""
    base: Path | None = None
    """mounted at /opt/ml where possible; the paths below need that"""
    hosts: Path | None = None
    """mounted at /etc/hosts"""
    own_folder: Path | None = None
    """the container's folder on this machine, where its /tmp, /var/tmp and /run lie"""
    view: View = NO_VIEW
    network: NetworkPlan | None = None
    """None: the machine's"""
    gpus: tuple[str, ...] | None = None
    """ids of the GPUs that the container sees: nvidia-smi's indices, or UUIDs of MIG devices;
    None: whatever the machine has"""
    is_command: bool = False
    """of the user's own: it may use fixed paths, such as /tmp/server.sock"""
    image: ImagePlan | None = None
    """None: the command is a program of this machine"""
    may_fork: bool = True
    """a fork server may start it"""


class Process(Protocol):
    """A started container."""

    @property
    def pid(self) -> int: ...

    @property
    def address(self) -> str | None:
        """Where the container serves, if its launcher has chosen that; None: as planned."""

    async def wait(self) -> int:
        """Returns the exit status, or minus the signal."""

    def terminate(self) -> None:
        """Sends SIGTERM; does nothing if the process has ended."""

    def kill(self) -> None:
        """Kills the process and its descendants; does nothing if it has ended."""

    def last_lines(self) -> list[str]: ...

    async def memory_bytes(self) -> int:
        """Memory of the process and its descendants; 0 if the process has ended."""

    async def cpu_seconds(self) -> float:
        """CPU time of the process and its descendants; 0 if the process has ended."""

    async def listening_ports(self) -> list[int]:
        """TCP ports of the process and its descendants; empty if the process has ended."""

    def reach(self, port: int) -> AbstractAsyncContextManager[str]:
        """An address of `http1` for one more TCP port of the container. Raises OSError."""

    def note(self, message: str) -> None:
        """Adds a platform line to the log. Blocks."""

    @property
    def ended_because(self) -> str | None:
        """Why the process was ended, if known and not by `kill`."""

    @property
    def is_forked(self) -> bool:
        """Whether a fork server has started it."""

    def hits(self) -> LimitHits: ...


class Launcher(Protocol):
    def container_base(self, base: Path) -> Path:
        """The container's path of `base`."""

    async def start(self, plan: LaunchPlan) -> Process:
        """Raises CannotStart if the command cannot be run."""
