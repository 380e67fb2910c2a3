"""What the instances of a node share."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.instances.container_plan import Ports
from sagehen.agent.launchers.launcher import Launcher
from sagehen.base.clock import Clock
from sagehen.base.home import Home

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Node", "Pace"]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often things are looked at, and how long they may take: SageMaker's, but for tests."""

    first_ping_interval_seconds: float = 0.02
    """While starting: short at first, so that a small model is in service at once."""
    longest_ping_interval_seconds: float = 1.0
    port_hint_seconds: float = 15.0
    """After which a container that listens on none of its ports, or another, is told of that."""
    ping_interval_seconds: float = 5.0
    """While in service."""
    ping_timeout_seconds: float = 2.0
    pings_failed_in_a_row: int = 3
    """So many, and the instance is started again."""
    stop_seconds: float = 30.0
    """From SIGTERM to SIGKILL."""
    next_container_seconds: float = 0.1
    """From the end of a container to the SIGTERM of the next: what it answered last is to get
    there first."""
    unhealthy_stop_seconds: float = 5.0
    first_restart_delay_seconds: float = 0.2
    longest_restart_delay_seconds: float = 10.0
    steady_after_seconds: float = 10.0
    """What has served for so long is restarted with the first delay again."""


@dataclass(frozen=True, kw_only=True)
class Node:
    settings: "Settings"
    home: Home
    artifacts: ArtifactCache
    launcher: Launcher
    clock: Clock
    ports: Ports = field(default_factory=Ports)
    pace: Pace = field(default_factory=Pace)
