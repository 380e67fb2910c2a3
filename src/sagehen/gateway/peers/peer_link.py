"""A gateway's link to another node of its cluster: TCP with TLS, frames as to a container, and
those of credits."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any

from sagehen.base.clock import Clock
from sagehen.gateway.peers.messages import CLUSTER_VERSION, Failure, decode_failure
from sagehen.http1.client import Receiver
from sagehen.link.call import LinkCall
from sagehen.link.client import LinkClient
from sagehen.link.client_stream import ClientStream
from sagehen.link.frames import (
    BUSY,
    FAILURE,
    FREE,
    GRANT,
    PING,
    RELEASE,
    ROUTE,
    Frame,
    LinkError,
    encode_frame,
)

if TYPE_CHECKING:
    from sagehen.gateway.peers.nodes import PeerNode
    from sagehen.gateway.peers.remote_instance import RemotePool

__all__ = ["PING_ANSWER", "PING_REQUEST", "PeerCall", "PeerClient", "PeerStream", "PeerTls"]

log = logging.getLogger(__name__)

PING_REQUEST, PING_ANSWER = 0, 1
"""numbers of PING frames"""


class PeerTls:
    """How a node is recognised; None in its place leaves a link open to read, for measurements."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self.context = context
        self.server_name = server_name


class PeerCall(LinkCall):
    """One request to another node."""

    __slots__ = ("_head", "_pool", "failure")

    _pool: "RemotePool"

    def __init__(self, stream: "ClientStream", number: int) -> None:
        super().__init__(stream, number)
        self._head = b""
        self.failure: Failure | None = None
        """why the node could not answer"""

    def begin(self, pool: "RemotePool", head: bytes) -> None:
        """`head`: what the node must know to place the request."""
        self._pool = pool
        self._head = head

    def send(
        self, receiver: Receiver, path: bytes, header_lines: bytes, body: list[bytes], size: int
    ) -> None:
        """The node itself knows the container's path."""
        super().send(receiver, self._head, header_lines, body, size)

    # Called by the stream

    def breaks(self, not_begun: bool) -> None:
        super().breaks(not_begun or not self.is_sent)

    def refused(self) -> None:
        """The node had no free slot."""
        self._pool.was_busy = True
        self.breaks(not_begun=True)
        self._pool.was_busy = False

    def failed(self, failure: Failure) -> None:
        self.failure = failure
        self.breaks(not_begun=not failure.is_begun)


class PeerStream(ClientStream):
    """One stream to another node."""

    __slots__ = ("_node", "is_heard")

    call_class = PeerCall

    def __init__(self, client: "PeerClient", node: "PeerNode") -> None:
        super().__init__(client, None)
        self._node = node
        self.is_heard = True
        """something has come since the last look"""

    def _hello(self) -> dict[str, Any]:
        return {**super()._hello(), "cluster_versions": [CLUSTER_VERSION]}

    def data_received(self, data: bytes) -> None:
        self.is_heard = True
        super().data_received(data)

    def handle_frames(self, frames: list[Frame]) -> None:
        ours = [frame for frame in frames if frame[0] >= ROUTE]
        if len(ours) < len(frames):
            super().handle_frames([frame for frame in frames if frame[0] < ROUTE])
        for kind, _, number, status, head, body in ours:
            if kind == GRANT:
                self._node.granted(number, head.decode())
            elif kind == FREE:
                self._node.reported_free(number, status)
            elif kind == PING:
                if number == PING_REQUEST:
                    self.send(encode_frame(PING, PING_ANSWER))
            elif kind == RELEASE:
                self._node.released(number)
            elif kind in (BUSY, FAILURE):
                self._handle_end(kind, number, body)
            else:
                raise LinkError(f"A node must not send frames of kind {kind}.")

    def _handle_end(self, kind: int, number: int, body: bytes) -> None:
        failure = decode_failure(body) if kind == FAILURE else None
        call = self._calls.get(number)
        if call is None:
            return
        self._end(number)
        assert isinstance(call, PeerCall)
        try:
            if failure is None:
                call.refused()
            else:
                call.failed(failure)
        except Exception:
            log.exception("The end of a request could not be handled.")


class PeerClient(LinkClient):
    """The link to one node, which is opened as soon as the node is known."""

    def __init__(
        self, node: "PeerNode", host: str, port: int, tls: PeerTls | None, clock: Clock
    ) -> None:
        super().__init__(f"{host}:{port}", clock)
        self._node = node
        self._host = host
        self._port = port
        self._tls = tls

    @property
    def stream(self) -> PeerStream | None:
        """None while the link is not open."""
        stream = self._stream
        if isinstance(stream, PeerStream) and stream.is_open:
            return stream
        return None

    def open(self) -> None:
        self._open_if_closed()

    async def _connect(self) -> ClientStream:
        tls = self._tls
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: PeerStream(self, self._node),
            self._host,
            self._port,
            ssl=None if tls is None else tls.context,
            server_hostname=None if tls is None else tls.server_name,
        )
        return stream

    def _opened_stream(self, stream: ClientStream) -> None:
        self._node.opened()

    def _open_failed(self) -> None:
        super()._open_failed()
        self._node.lost()

    def stream_lost(self, stream: ClientStream) -> None:
        if self._stream is not stream:
            return
        self._stream = None
        # The node is marked first: what waits goes to others, and the node is looked for later.
        self._node.lost()
        self._refuse_waiting()
