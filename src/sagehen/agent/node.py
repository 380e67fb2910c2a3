"""State that the instances of a node share."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.image_environments import ImageEnvironments
from sagehen.agent.instances.container_plan import Ports
from sagehen.agent.launchers.launcher import Launcher
from sagehen.agent.launchers.own_network import NO_NETWORKS, NetworkSupport
from sagehen.base.clock import Clock
from sagehen.base.home import Home

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Node", "Pace"]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Intervals and timeouts: SageMaker's, except in tests."""

    first_ping_interval_seconds: float = 0.02
    """short, so that a small model is in service at once"""
    longest_ping_interval_seconds: float = 1.0
    port_hint_seconds: float = 15.0
    """then a container is told that its port is not open"""
    ping_interval_seconds: float = 5.0
    """while in service"""
    ping_timeout_seconds: float = 2.0
    pings_failed_in_a_row: int = 3
    """then the instance is restarted"""
    gpu_wait_seconds: float = 3.0
    """for GPUs that others hold; longer than a replaced instance stays in the routes"""
    stop_seconds: float = 30.0
    """to SIGKILL, from SIGTERM or from the wait for answers before it"""
    answer_seconds: float = 15.0
    """of these, for requests that a command has begun"""
    next_container_seconds: float = 0.1
    """between containers: time for the last answer to arrive"""
    unhealthy_stop_seconds: float = 5.0
    first_restart_delay_seconds: float = 0.2
    longest_restart_delay_seconds: float = 10.0
    steady_after_seconds: float = 10.0
    """then the restart delay is reset"""


@dataclass(frozen=True, kw_only=True)
class Node:
    settings: "Settings"
    home: Home
    artifacts: ArtifactCache
    launcher: Launcher
    clock: Clock
    gpus: GpuPool
    image_environments: ImageEnvironments
    ports: Ports = field(default_factory=Ports)
    networks: NetworkSupport = NO_NETWORKS
    pace: Pace = field(default_factory=Pace)
