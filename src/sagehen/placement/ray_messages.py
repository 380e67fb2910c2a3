"""The messages between control and its Ray process."""

import msgspec

from sagehen.frame.nodes import Resources

__all__ = ["RayNode", "RayNodeList", "RayOrders", "RayReservation"]


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that Ray holds to be alive."""

    ray_id: str
    host: str
    resources: Resources
    addresses: bytes = b""
    """NodeAddresses as JSON, once an agent runs there that Ray has started"""


class RayNodeList(msgspec.Struct, frozen=True, kw_only=True):
    own_id: str
    """Ray's node on this machine"""
    nodes: tuple[RayNode, ...]


class RayReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of an instance or job."""

    key: str
    resources: Resources
    ray_id: str = ""
    """empty while no node has room"""


class RayOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes and reservations that the leading control wants. Sending them again is harmless."""

    start_agents: dict[str, bytes] = {}
    """pickled NodeStart by Ray's node"""
    stop_agents: tuple[str, ...] = ()
    reservations: tuple[RayReservation, ...] | None = None
    """all that there are to be; None: as they are"""
