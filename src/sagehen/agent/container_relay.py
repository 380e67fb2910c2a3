"""The relay to this node's containers for the control that leads: see `frame/container_relay.py`.

request ──► connecting ──► open ──► lingering: the container has ended, the client reads the rest
   └────────────┴─ refused ─┴───────────► ended
"""

import asyncio
import logging
import os
from collections.abc import Callable
from enum import Enum
from typing import cast

from sagehen.agent.control_lease import NoControl, OldEpoch, require_control
from sagehen.base.clock import Clock
from sagehen.base.errors import NotFound
from sagehen.frame.container_relay import (
    BROKEN,
    END,
    RelayAnswer,
    RelayOutcome,
    RelayRequest,
    encode_message,
    frame_head,
    read_message,
)
from sagehen.http1.limits import MAX_PIECE_BYTES
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS, open_connection

__all__ = ["ContainerRelay"]

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
"""for the request, which comes at once"""
UNREAD_SECONDS = 600.0
"""for the client to read the rest of an answer"""
LINGER_SECONDS = 10.0
"""for the client to read the rest: it may be sending a body that nobody reads any more, and a
connection that ends before that is read would take the rest with it"""
WRITE_BUFFER_BYTES = 256 * 1024
"""may wait on either side, before the other is not read any more"""


class ContainerRelay:
    """Relays connections to containers that run here now.

    Args:
        find: returns the address of a container of an instance, from 0; raises NotFound.
        check_epoch: raises OldEpoch for a control that no longer leads.
    """

    def __init__(
        self,
        find: Callable[[str, int], str],
        check_epoch: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self.find = find
        self.check_epoch = check_epoch
        self.clock = clock
        self.connections: set[_Relayed] = set()

    def accept(self) -> asyncio.Protocol:
        """Returns the protocol of a new connection."""
        return _Relayed(self)

    def cut_older(self, epoch: int) -> None:
        """Ends the connections of earlier leaders."""
        for each in list(self.connections):
            if each.epoch is not None and each.epoch < epoch:
                each.abort()

    def close(self) -> None:
        for each in list(self.connections):
            each.abort()


class _Phase(Enum):
    REQUEST = "request"
    CONNECTING = "connecting"
    OPEN = "open"
    LINGERING = "lingering"
    """what comes is dropped"""


class _Relayed(asyncio.Protocol):
    """The client's side of one connection."""

    def __init__(self, relay: ContainerRelay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport
        self._phase = _Phase.REQUEST
        self._received = bytearray()
        self._connecting: asyncio.Task[None] | None = None
        self._container: _ContainerSide | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.epoch: int | None = None
        """of the control that has asked"""

    def abort(self) -> None:
        self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._relay.connections.add(self)
        self._end_within(REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.OPEN and self._container is not None:
            self._container.transport.write(data)
        elif self._phase is _Phase.REQUEST:
            self._read_request(data)
        elif self._phase is _Phase.CONNECTING:
            self._transport.abort()

    def pause_writing(self) -> None:
        if self._container is not None:
            self._container.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._container is not None and self._phase is _Phase.OPEN:
            self._container.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._container is not None:
            # Nobody wants the answer any more.
            self._container.transport.abort()

    # The request

    def _read_request(self, data: bytes) -> None:
        self._received += data
        try:
            request = read_message(self._received, RelayRequest)
        except ValueError as error:
            log.warning("A request to the relay cannot be read: %s", error, extra=_ABOUT)
            self._transport.abort()
            return
        if request is not None and self._received:
            # A client waits for the answer, so that nothing has begun if the container refuses.
            self._transport.abort()
        elif request is not None:
            self._begin(request)

    def _begin(self, request: RelayRequest) -> None:
        self._phase = _Phase.CONNECTING
        try:
            require_control(self._transport.get_extra_info("peercert"))
            self._relay.check_epoch(request.epoch)
            address = self._relay.find(request.instance_id, request.container)
        except OldEpoch as error:
            self._refuse(RelayOutcome.OLD_EPOCH, str(error))
        except NoControl as error:
            self._refuse(RelayOutcome.NO_CONTROL, str(error))
        except NotFound as error:
            self._refuse(RelayOutcome.NO_INSTANCE, str(error))
        else:
            self.epoch = request.epoch
            self._connecting = asyncio.create_task(self._connect(address))

    async def _connect(self, address: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await open_connection(address, lambda: _ContainerSide(self), self._relay.clock)
        except OSError as error:  # includes TimeoutError
            if self._phase is _Phase.CONNECTING:
                self._refuse(RelayOutcome.REFUSED, f"{address} cannot be reached: {error}")
        finally:
            self._connecting = None

    def _refuse(self, outcome: RelayOutcome, reason: str) -> None:
        self._transport.write(encode_message(RelayAnswer(outcome=outcome, reason=reason)))
        self._linger()

    # Called by the container's side

    def opened(self, container: "_ContainerSide") -> None:
        if self._transport.is_closing():
            container.transport.abort()
            return
        self._container = container
        self._phase = _Phase.OPEN
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport.write(encode_message(RelayAnswer(outcome=RelayOutcome.OPEN)))

    def forward(self, data: bytes) -> None:
        self._transport.writelines((frame_head(len(data)), data))

    def container_full(self) -> None:
        self._transport.pause_reading()

    def container_drained(self) -> None:
        self._transport.resume_reading()

    def container_ended(self, in_order: bool) -> None:
        if self._phase is not _Phase.OPEN or self._transport.is_closing():
            return
        self._container = None
        self._transport.write(END if in_order else BROKEN)
        self._transport.resume_reading()
        self._phase = _Phase.LINGERING
        # Control reads as fast as it writes outputs, and the object store may be away for minutes.
        self._end_within(UNREAD_SECONDS)

    def _linger(self) -> None:
        self._phase = _Phase.LINGERING
        self._end_within(LINGER_SECONDS)

    def _end_within(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._transport.abort)


class _ContainerSide(asyncio.Protocol):
    """The connection to the container."""

    transport: asyncio.Transport

    def __init__(self, client: _Relayed) -> None:
        self._client = client

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._client.opened(self)

    def data_received(self, data: bytes) -> None:
        self._client.forward(data)

    def pause_writing(self) -> None:
        self._client.container_full()

    def resume_writing(self) -> None:
        self._client.container_drained()

    def eof_received(self) -> None:
        # At once: a container that has answered may never read the rest of the request.
        self._client.container_ended(in_order=True)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, (ConnectionResetError, BrokenPipeError)):
            self._forward_what_is_left()
        self._client.container_ended(in_order=False)

    def _forward_what_is_left(self) -> None:
        """A container may refuse a request, answer and close while the body is being written. The
        write then fails, and the event loop forgets data that is still in the socket."""
        try:
            descriptor = self.transport.get_extra_info("socket").fileno()
            # Bounded by the socket's buffer: nobody writes into it any more.
            while piece := os.read(descriptor, MAX_PIECE_BYTES):
                self._client.forward(piece)
        except OSError:
            return


_ABOUT = {"action": "container_relay"}
