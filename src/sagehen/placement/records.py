"""The nodes of a cluster."""

import msgspec

from sagehen.frame.nodes import Resources

__all__ = ["NodeRecord"]


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the cluster, as its row says."""

    node_id: str
    agent_address: str
    """`host:port`, as the other two"""
    peer_address: str
    """where its gateways take requests for its instances"""
    gateway_address: str
    """where its gateways take clients' requests"""
    resources: Resources
    """what instances and jobs may use"""
    has_control: bool = False
    """a control runs there, which may lead"""
    is_draining: bool = False
    """by an operator, until it is undone"""
    is_leaving: bool = False
    """its server stops; until it starts again"""
    ray_id: str = ""
    """of Ray's node on this machine; empty without Ray"""
    epoch: int = 0
    """of the control that has seen it last"""
    seen_at: float = 0.0
    """when that was, in seconds since the epoch"""
    version: str = ""
    """of Sagehen; empty where it does not say"""

    @property
    def host(self) -> str:
        """The machine's address, without the brackets of an IPv6 address."""
        return self.agent_address.rpartition(":")[0].strip("[]")

    @property
    def takes_work(self) -> bool:
        """If not, nothing new is placed there, and instances of endpoints move away."""
        return not (self.is_draining or self.is_leaving)
