"""Removes containers and networks that an earlier agent of the same home has left.

Containers of the engine survive the agent. A container is this home's if its labels have the
home's id and path: a copied home has another path, and a home at the same path of another file
system another id.
"""

import contextlib
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagehen.agent.errors import EngineError
from sagehen.agent.launchers.docker.left_files import try_opening
from sagehen.base.home import Home

if TYPE_CHECKING:
    from sagehen.agent.launchers.docker.engine import Engine

__all__ = [
    "AGENT_LABEL",
    "HOME_LABEL",
    "PATH_LABEL",
    "ContainerOwnership",
    "read_ownership",
    "remove_leftovers",
]

log = logging.getLogger(__name__)

HOME_LABEL = "sagehen.home"
PATH_LABEL = "sagehen.home-path"
AGENT_LABEL = "sagehen.agent"
"""a new value for each agent"""


@dataclass(frozen=True)
class ContainerOwnership:
    """Identifies the home that containers belong to."""

    home_id: str
    path: str
    agent_id: str

    @property
    def labels(self) -> dict[str, str]:
        return {HOME_LABEL: self.home_id, PATH_LABEL: self.path, AGENT_LABEL: self.agent_id}

    @property
    def network(self) -> str:
        return f"sagehen-{self.home_id}"

    def left(self, labels: dict[str, str] | None) -> bool:
        """Whether an earlier agent of this home has left a thing with these labels."""
        held = labels or {}
        return (
            held.get(HOME_LABEL) == self.home_id
            and held.get(PATH_LABEL) == self.path
            and held.get(AGENT_LABEL) not in (None, self.agent_id)
        )


def read_ownership(home: Home) -> ContainerOwnership:
    """Reads the home's id, or makes one. Raises OSError."""
    try:
        home_id = home.docker_id.read_text().strip()
    except FileNotFoundError:
        home_id = ""
    if not home_id:
        home_id = secrets.token_hex(6)
        home.docker_id.write_text(home_id)
    return ContainerOwnership(home_id, str(home.path.resolve()), secrets.token_hex(8))


def remove_leftovers(engine: "Engine", ownership: ContainerOwnership) -> None:
    """Blocks. Raises EngineError."""
    label = f"{HOME_LABEL}={ownership.home_id}"
    for container in engine.list_containers(label):
        if ownership.left(container.get("Labels")):
            log.warning("Removing the container %s of an earlier agent.", container["Id"][:12])
            with contextlib.suppress(EngineError):  # it has ended
                engine.signal(container["Id"], "SIGKILL")
                engine.wait(container["Id"])
            try_opening(engine, container["Id"])
            engine.remove(container["Id"])
    for network in engine.list_networks(label):
        if ownership.left(network.get("Labels")):
            try:
                engine.remove_network(network["Id"])
            except EngineError as error:
                # Somebody has joined another container to it.
                log.warning("The network %s could not be removed: %s.", network["Name"], error)
