"""Containers' own network namespaces, as the agent sees them.

    container's namespace               machine
    :8080 ◄──────────── hand_over.py ◄── gateway, agent: `handoff:/path`
    connect(any) ──► listeners ──► relay.py ──► internet, server, name server

`become_container` makes the namespace and its listeners (`container_network`); the two programs,
started here, serve it. All of it ends with the container: nothing is left on the machine.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sagehen.agent.launchers import relay
from sagehen.agent.launchers.handoff import open_handoff
from sagehen.agent.launchers.helper_process import HelperProcess, start_helper
from sagehen.agent.launchers.launcher import NetworkPlan
from sagehen.agent.launchers.orphans import Orphans

__all__ = [
    "NO_NETWORKS",
    "NetworkSupport",
    "RelayControl",
    "find_nameservers",
    "network_option",
    "relay_control",
    "serve_network",
]

MAX_NAMESERVERS = 3
"""as many as the C library reads"""
DEFAULT_NAMESERVER = "127.0.0.1"
RESOLV_CONF = Path("/etc/resolv.conf")
NO_NETWORK = "none"
SHARED = "of:"

_PROGRAM = Path(relay.__file__)


@dataclass(frozen=True)
class NetworkSupport:
    """Which networks containers can have here; why not, if not."""

    missing: str | None
    """why a container cannot be without a network; None: it can"""
    missing_outgoing: str | None
    """why one with a network cannot have its own; None: it can"""


NO_NETWORKS = NetworkSupport("the launcher has none", "the launcher has none")


class RelayControl:
    """The two ends of the Unix socket by which a container gives its listeners to the relay."""

    def __init__(self) -> None:
        self.container, self.relay = socket.socketpair()

    def close(self) -> None:
        self.container.close()
        self.relay.close()


@contextlib.contextmanager
def relay_control(network: NetworkPlan | None) -> Iterator[RelayControl | None]:
    """Yields None for a container that needs no relay."""
    if network is None or not network.outgoing:
        yield None
        return
    with contextlib.closing(RelayControl()) as control:
        yield control


def network_option(network: NetworkPlan | None, control: RelayControl | None) -> str | None:
    """Returns the option of `become_container`."""
    if network is None:
        return None
    if network.shared_with is not None:
        return f"{SHARED}{network.shared_with}"
    if control is None:
        return NO_NETWORK
    names = find_nameservers(_read(RESOLV_CONF))
    return "/".join([str(control.container.fileno()), str(network.server_port), *names])


async def serve_network(
    pid: int,
    network: NetworkPlan,
    control: RelayControl | None,
    orphans: Orphans,
    helpers: list[HelperProcess],
) -> None:
    """Starts the programs that serve a started container, and adds them to `helpers`.

    Raises OSError: they cannot be started, or the container has ended.
    """
    if control is not None:
        # The relay must see the end of a container that has not sent its listeners.
        control.container.close()
        descriptor = control.relay.fileno()
        helpers.append(await start_helper(_PROGRAM, (descriptor, pid), [descriptor], orphans))
    if network.handoff is not None:
        helpers.append((await open_handoff(pid, network.handoff, orphans)).helper)


def find_nameservers(resolv_conf: str) -> list[str]:
    """The IPv4 addresses in the C library's configuration file."""
    found: list[str] = []
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", address, *_] if address not in found:
                with contextlib.suppress(ipaddress.AddressValueError):
                    found.append(str(ipaddress.IPv4Address(address)))
    return found[:MAX_NAMESERVERS] or [DEFAULT_NAMESERVER]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
