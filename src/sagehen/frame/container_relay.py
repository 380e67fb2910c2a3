"""The way to containers of other nodes of the cluster: over TLS, through the agent of their node.

    us                                            the agent
    RelayRequest: epoch, instance, container ──►  looks the container up, and connects to it
                                             ◄──  RelayAnswer: it is open, or why not
    the bytes for the container ──►          ◄──  what the container sends, in frames

Before the answer, nothing is sent for the container. The frames tell the container's own end of the
connection from the loss of the way to it, which TLS does not.
"""

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sagehen.frame.container_specs import InstanceReport
from sagehen.http1.pool import Connector, open_connection

__all__ = [
    "ALPN",
    "BROKEN",
    "BROKEN_LENGTH",
    "END",
    "LENGTH",
    "LOCAL_ACCESS",
    "MAX_MESSAGE_BYTES",
    "ContainerAccess",
    "FrameTooLarge",
    "RelayAnswer",
    "RelayNodes",
    "RelayOutcome",
    "RelayRequest",
    "RemoteContainer",
    "encode_message",
    "frame_head",
    "locate",
    "locate_report",
    "read_message",
]

ALPN = "sagehen-relay-1"
"""By this name a connection to an agent is one to a container. It changes with the messages."""
MAX_MESSAGE_BYTES = 16 * 1024
LENGTH = struct.Struct("!I")
END = LENGTH.pack(0)
"""in place of a frame: the container has ended the connection, in order"""
BROKEN_LENGTH = 2**32 - 1
BROKEN = LENGTH.pack(BROKEN_LENGTH)
"""in place of a frame: the connection to the container was lost"""
_PREFIX = "node:"

Message = TypeVar("Message")


class FrameTooLarge(ValueError):
    """The length of a message is larger than any that is sent."""


class RelayOutcome(StrEnum):
    OPEN = "open"
    OLD_EPOCH = "old-epoch"
    """another control leads"""
    NO_CONTROL = "no-control"
    """the certificate is not that of a node with a control"""
    NO_INSTANCE = "no-instance"
    """the node does not run it now"""
    REFUSED = "refused"
    """the container takes no connections"""


class RelayRequest(msgspec.Struct, frozen=True, kw_only=True):
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
    """of the control that leads"""
    instance_id: str
    container: int
    """from 0, in the instance's order"""


class RelayAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    outcome: RelayOutcome
    reason: str = ""


class RelayNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The other nodes that answer now."""

    epoch: int
    """of the control that leads"""
    addresses: dict[str, str]
    """`host:port` of agents, by node id"""
    certificates: str
    """the folder of this machine's own certificate"""


class RemoteContainer(NamedTuple):
    """A container of another node, as addresses name it: `node:<node>/<instance>/<number>`, with
    `link:` before it where it has a link."""

    node_id: str
    instance_id: str
    number: int

    @classmethod
    def parse(cls, address: str) -> "RemoteContainer | None":
        """Returns None for the address of a container of this machine."""
        address = address.removeprefix("link:")
        if not address.startswith(_PREFIX):
            return None
        node_id, instance_id, number = address.removeprefix(_PREFIX).split("/")
        return cls(node_id, instance_id, int(number))


def locate(address: str, own_node_id: str, node_id: str, instance_id: str, number: int = 0) -> str:
    """Returns the address by which this machine reaches a container, which is `address` on the
    container's own. `own_node_id`: empty where there is no cluster."""
    if node_id in ("", own_node_id):
        return address
    kind = "link:" if address.startswith("link:") else ""
    return f"{kind}{_PREFIX}{node_id}/{instance_id}/{number}"


def locate_report(report: InstanceReport, own_node_id: str) -> InstanceReport:
    """Returns the report with addresses by which this machine reaches the containers."""
    if report.node_id in ("", own_node_id) or report.address is None:
        return report
    key = (own_node_id, report.node_id, report.instance_id)
    return replace(
        report,
        address=locate(report.address, *key),
        containers=tuple(
            replace(container, address=locate(container.address, *key, number))
            for number, container in enumerate(report.containers)
        ),
    )


def encode_message(message: RelayRequest | RelayAnswer) -> bytes:
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


def read_message(buffer: bytearray, kind: type[Message]) -> Message | None:
    """Takes a message from the beginning of `buffer`; returns None while it is not whole.

    Raises ValueError.
    """
    if len(buffer) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffer)
    if length > MAX_MESSAGE_BYTES:
        raise FrameTooLarge(f"A message of {length} bytes is larger than any that is expected.")
    end = LENGTH.size + length
    if len(buffer) < end:
        return None
    message = msgspec.json.decode(bytes(buffer[LENGTH.size : end]), type=kind)
    del buffer[:end]
    return message


def frame_head(size: int) -> bytes:
    return LENGTH.pack(size)


class ContainerAccess(NamedTuple):
    """How containers of all nodes are reached from this machine, which may be the only one."""

    own_node_id: str = ""
    """as of `locate`"""
    connector: Connector = open_connection
    nodes: Callable[[], RelayNodes | None] = lambda: None
    """for other processes on this machine"""


LOCAL_ACCESS = ContainerAccess()
