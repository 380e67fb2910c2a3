"""Containers' own network namespaces, as the agent sees them.

    container's namespace               machine
    :8080 ◄──────────── hand_over.py ◄── gateway, agent: `handoff:/path`
    connect(any) ──► listeners ──► relay.py ──► internet, server, name server

`become_container` makes the namespace and its listeners (`container_network`), and forks the two
processes that serve it. All of it ends with the container: nothing is left on the machine.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sagehen.agent.launchers.handoff import listen_at
from sagehen.agent.launchers.launcher import NetworkPlan

__all__ = [
    "NO_NETWORKS",
    "NetworkSupport",
    "find_nameservers",
    "handoff_listener",
    "network_options",
]

MAX_NAMESERVERS = 3
"""as many as the C library reads"""
DEFAULT_NAMESERVER = "127.0.0.1"
RESOLV_CONF = Path("/etc/resolv.conf")
NO_NETWORK = "none"
OUTGOING = "out"
SHARED = "of:"


@dataclass(frozen=True)
class NetworkSupport:
    """Which networks containers can have here; why not, if not."""

    missing: str | None
    """why a container cannot be without a network; None: it can"""
    missing_outgoing: str | None
    """why one with a network cannot have its own; None: it can"""


NO_NETWORKS = NetworkSupport("the launcher has none", "the launcher has none")


@contextlib.contextmanager
def handoff_listener(network: NetworkPlan | None) -> Iterator[socket.socket | None]:
    """Yields what `become_container` inherits; None for a container without a handoff."""
    if network is None or network.handoff is None:
        yield None
        return
    with listen_at(network.handoff) as listener:
        yield listener


def network_options(network: NetworkPlan | None, handoff: socket.socket | None) -> Iterator[str]:
    """Yields the options of `become_container`."""
    if network is None:
        return
    if network.shared_with is not None:
        yield f"network={SHARED}{network.shared_with}"
    elif not network.outgoing:
        yield f"network={NO_NETWORK}"
    else:
        names = find_nameservers(_read(RESOLV_CONF))
        yield "network=" + "/".join([OUTGOING, str(network.server_port), *names])
    if handoff is not None:
        yield f"handoff={handoff.fileno()}"


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
