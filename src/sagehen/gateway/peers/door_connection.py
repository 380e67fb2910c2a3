"""The link of one gateway of another node: what its frames mean at this end."""

import asyncio
import logging
from typing import TYPE_CHECKING

from sagehen.base.cluster_certificates import peer_node_id
from sagehen.base.errors import Invalid
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.peers.door_invocation import DoorInvocation
from sagehen.gateway.peers.messages import (
    CLUSTER_VERSION,
    Failure,
    PeerRequestHead,
    PeerRoute,
    decode_head,
    decode_route,
    encode_failure,
)
from sagehen.gateway.peers.peer_link import PING_ANSWER, PING_REQUEST
from sagehen.link.frames import (
    BUSY,
    CANCEL,
    DATA,
    END,
    FAILURE,
    FREE,
    GRANT,
    HELLO,
    LARGE_REQUEST,
    PING,
    PREFACE,
    REFUSAL,
    RELEASE,
    REQUEST,
    RESERVE,
    ROUTE,
    SESSION,
    VERSION,
    WELCOME,
    WINDOW,
    Frame,
    LinkError,
    body_length,
    encode_frame,
    encode_settings,
    read_reason,
    read_settings,
    window_bytes,
)
from sagehen.link.stream import BodyReceiver, BodySender, FrameStream

if TYPE_CHECKING:
    from sagehen.gateway.peers.door import Door
    from sagehen.gateway.routing.endpoint import Variant
    from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["DoorConnection"]

log = logging.getLogger(__name__)

LOST_AFTER = 3
"""looks, one each second, after which a silent gateway is cut off"""
UNUSED_GRANT_SECONDS = 3.0
"""for which a granted slot waits for its request"""
MAX_RESERVATIONS = 65_536
"""of one gateway"""
MAX_FREE = 65_535
"""slots that a frame can report"""
_FIRST_KINDS = frozenset((HELLO, REFUSAL))


class DoorConnection(FrameStream):
    """The link of one gateway of another node."""

    def __init__(self, door: "Door") -> None:
        super().__init__()
        self._door = door
        self._preface: bytes | None = b""
        """what has come of it; None when it is complete"""
        self._is_open = False
        """HELLO has come"""
        self._routes: dict[int, PeerRoute] = {}
        self._reservations: dict[int, DoorInvocation] = {}
        """whose requests have not come"""
        self._requests: dict[int, DoorInvocation] = {}
        self._receiving: dict[int, tuple[BodyReceiver, int]] = {}
        """large bodies, and their sizes"""
        self.sending: dict[int, BodySender] = {}
        """large answers"""
        self._touched: set[int] = set()
        """routes whose free slots have changed"""
        self._reported: dict[int, int] = {}
        """free slots by route, as the other node knows them"""
        self._is_heard = True
        self._silent_looks = 0

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._door.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.discard(self)
        for invocation in (*self._requests.values(), *self._reservations.values()):
            invocation.drop()
        for sender in self.sending.values():
            sender.stop()
        self._requests, self._reservations, self.sending = {}, {}, {}

    def data_received(self, data: bytes) -> None:
        self._is_heard = True
        if self._preface is not None:
            self._preface += data
            if len(self._preface) < len(PREFACE):
                return
            data, self._preface = self._preface, None
            if not data.startswith(PREFACE):
                self._transport.abort()
                return
            data = data[len(PREFACE) :]
        super().data_received(data)

    # Called by the door

    def look(self) -> None:
        now = self._door.context.monotonic()
        for number, reserved in list(self._reservations.items()):
            if reserved.is_unused_since(now - UNUSED_GRANT_SECONDS):
                del self._reservations[number]
                reserved.drop()
        if self._is_heard:
            self._is_heard = False
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks >= LOST_AFTER:
            log.warning("A gateway of the node %s does not answer.", self._peer_id())
            self.abort()
        elif self._is_open:
            self.send(encode_frame(PING, PING_REQUEST))

    @property
    def has_requests(self) -> bool:
        return bool(self._requests or self._receiving or self.sending)

    def close_if_done(self) -> None:
        if self._door.is_draining and not self.has_requests:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _peer_id(self) -> str:
        try:
            return peer_node_id(self._transport.get_extra_info("peercert"))
        except Invalid:
            return "?"

    # Receiving

    def handle_frames(self, frames: list[Frame]) -> None:
        if not self._is_open and frames and frames[0][0] not in _FIRST_KINDS:
            raise LinkError("The first frame of a link must be HELLO.")
        for kind, flags, number, _, head, body in frames:
            if kind == REQUEST:
                invocation = self._begin(number, head)
                if invocation is not None:
                    self._requests[number] = invocation
                    invocation.add_body(body)
                    invocation.body_ended()
            elif kind == RESERVE:
                self._reserve(number, head)
            elif kind == RELEASE:
                if (reserved := self._reservations.pop(number, None)) is not None:
                    reserved.drop()
            elif kind == CANCEL:
                self._cancel(number)
            else:
                self._handle_rare(kind, flags, number, head, body)

    def _handle_rare(self, kind: int, flags: int, number: int, head: bytes, body: bytes) -> None:
        """Raises LinkError."""
        if kind == DATA:
            self._receive(number, body, bool(flags & END))
        elif kind == LARGE_REQUEST:
            self._begin_large(number, head, body_length(body))
        elif kind == WINDOW:
            if (sender := self.sending.get(number)) is not None:
                sender.allow(window_bytes(body))
                self._forget_if_sent(number)
        elif kind == ROUTE:
            self._routes[number] = decode_route(body)
            self._touched.add(number)
            self._schedule_flush()
        elif kind == PING:
            if number == PING_REQUEST:
                self.send(encode_frame(PING, PING_ANSWER))
        elif kind == SESSION:
            self._copy_session(head, body)
        elif kind == HELLO:
            self._welcome(body)
        elif kind == REFUSAL:
            raise LinkError(f"The gateway ended the link: {read_reason(body)}")
        else:
            raise LinkError(f"A gateway must not send frames of kind {kind}.")

    def _welcome(self, body: bytes) -> None:
        """Raises LinkError."""
        if self._is_open:
            raise LinkError("HELLO came twice.")
        settings = read_settings(body)
        versions, ours = settings.get("versions"), settings.get("cluster_versions")
        if (
            not isinstance(versions, list)
            or not isinstance(ours, list)
            or VERSION not in versions
            or CLUSTER_VERSION not in ours
        ):
            raise LinkError(
                f"The gateway speaks the versions {versions} of the link and {ours} of the "
                f"cluster's frames, and this node {VERSION} and {CLUSTER_VERSION}: run the same "
                "version of Sagehen on all nodes."
            )
        self._is_open = True
        self.send(
            encode_settings(WELCOME, {"version": VERSION, "cluster_version": CLUSTER_VERSION})
        )

    def _reserve(self, number: int, head: bytes) -> None:
        """Raises LinkError."""
        if number in self._reservations or len(self._reservations) >= MAX_RESERVATIONS:
            raise LinkError(f"The reservation {number} is in use, or one too many.")
        read = decode_head(head)
        invocation = self._make(read)
        if invocation is None:
            self.send(encode_frame(RELEASE, number))
            return
        invocation.reservation = number
        self._reservations[number] = invocation
        invocation.reserve()

    def _begin(self, number: int, head: bytes) -> DoorInvocation | None:
        """Returns None if the request was refused. Raises LinkError."""
        if number in self._requests or number in self.sending:
            raise LinkError(f"The number {number} is in use.")
        path, _, lines = head.partition(b"\n")
        read = decode_head(path)
        self._touched.add(read.route)
        reserved = self._reservations.pop(read.reservation, None) if read.reservation else None
        if reserved is not None:
            reserved.number = number
            reserved.use_grant(lines)
            return reserved
        invocation = self._make(read, lines)
        if invocation is None:
            self.send(encode_frame(FAILURE, number, body=encode_failure(Failure(is_begun=False))))
            return None
        invocation.number = number
        if not invocation.take_slot_now():
            invocation.drop()
            self.send(encode_frame(BUSY, number))
            return None
        return invocation

    def _make(self, head: PeerRequestHead, lines: bytes = b"") -> DoorInvocation | None:
        """Returns None if this node has no instance for it. Raises LinkError."""
        route = self._routes.get(head.route)
        if route is None:
            raise LinkError(f"The route {head.route} is not known.")
        found = None if self._door.is_draining else self._door.find(route)
        if found is None:
            return None
        endpoint, variant = found
        if not variant.local:
            return None
        instance = None
        if head.instance_id:
            instance = next(
                (each for each in variant.local if each.instance_id == head.instance_id), None
            )
            if instance is None:
                return None
        admitted = Admitted(
            endpoint, variant.of_this_node(), lines, head.target_model, None, instance
        )
        invocation = DoorInvocation(
            self, self._door.context, admitted, variant.counters, head.age_microseconds / 1e6
        )
        invocation.route = head.route
        return invocation

    def _copy_session(self, name: bytes, content: bytes) -> None:
        try:
            self._door.context.sessions.copy(name.decode("latin-1"), content)
        except OSError as error:
            log.warning("A session of another node cannot be kept: %s", error)

    def _begin_large(self, number: int, head: bytes, size: int | None) -> None:
        """Raises LinkError."""
        if size is None:
            raise LinkError("The length of a large request is missing.")
        if number in self._receiving:
            raise LinkError(f"The number {number} is in use.")
        invocation = self._begin(number, head)
        if invocation is None:
            return
        self._requests[number] = invocation
        memory = self._door.context.body_memory
        if memory.bytes + size > memory.max_bytes:
            invocation.drop()
            self.fail(invocation, Failure(is_begun=False))
            return
        self._receiving[number] = (BodyReceiver(self, number), size)

    def _receive(self, number: int, data: bytes, is_last: bool) -> None:
        """Raises LinkError."""
        receiving = self._receiving.get(number)
        if receiving is None:
            return  # refused, and the gateway did not know yet
        receiver, size = receiving
        invocation = self._requests[number]
        received = invocation.body_bytes + len(data)
        if received > size or (is_last and received < size):
            raise LinkError(f"A body of {size} bytes was announced; {received} came.")
        receiver.received(len(data), is_last)
        invocation.add_body(data)
        if is_last:
            del self._receiving[number]
            invocation.body_ended()

    def _cancel(self, number: int) -> None:
        if (invocation := self._requests.get(number)) is not None:
            invocation.drop()
        if (sender := self.sending.pop(number, None)) is not None:
            sender.stop()

    # Answering

    def grant(self, reservation: int, instance_id: str) -> None:
        self.send(encode_frame(GRANT, reservation, instance_id.encode()))

    def fail(self, invocation: DoorInvocation, failure: Failure) -> None:
        if invocation.number:
            self.send(encode_frame(FAILURE, invocation.number, body=encode_failure(failure)))
        else:
            self.send(encode_frame(RELEASE, invocation.reservation))

    def break_off(self, invocation: DoorInvocation) -> None:
        """Tells that an answer will not be completed."""
        if (sender := self.sending.pop(invocation.number, None)) is not None:
            sender.stop()
        self.send(encode_frame(CANCEL, invocation.number))

    def ended(self, invocation: DoorInvocation) -> None:
        """The invocation has released everything."""
        if invocation.number:
            self._requests.pop(invocation.number, None)
            self._receiving.pop(invocation.number, None)
            self._forget_if_sent(invocation.number)
        elif invocation.reservation:
            self._reservations.pop(invocation.reservation, None)
        self._touched.add(invocation.route)
        self._schedule_flush()
        if self._door.is_draining:
            self.close_if_done()

    def _forget_if_sent(self, number: int) -> None:
        sender = self.sending.get(number)
        if sender is not None and sender.is_done:
            del self.sending[number]

    def _schedule_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def before_flush(self) -> None:
        """Reports the free slots of the queues that this turn has changed."""
        touched, self._touched = self._touched, set()
        for number in touched:
            route = self._routes.get(number)
            found = None if route is None else self._door.find(route)
            free = 0 if found is None else _free_slots(found[1])
            if self._reported.get(number) != free:
                self._reported[number] = free
                self._outgoing.append(encode_frame(FREE, number, status=free))


def _free_slots(variant: "Variant") -> int:
    queue: SlotQueue = variant.slot_queue
    if queue.must_queue:
        return 0
    free = sum(max(0, each.slots - each.outstanding) for each in variant.local)
    return min(free, MAX_FREE)
