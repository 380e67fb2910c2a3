"""Connections in the relay's hands, one turn of its loop after the other."""

import _socket
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sagehen.agent.launchers import relay as module

TURNS = 100_000
"""more than all that is sent here takes"""


class Relayed:
    """One connection: `client` is the container's end, `server` the machine's."""

    def __init__(self, stack: ExitStack) -> None:
        self.relay = module._Relay({})
        stack.callback(self.relay._poll.close)
        self.client, inside = pair(stack)
        self.server, outside = pair(stack)
        one, other = (module._End(each) for each in (inside, outside))
        one.other, other.other = other, one
        self.relay._ends |= {one.descriptor: one, other.descriptor: other}
        for end in (one, other):
            stack.callback(end.connection.close)
            self.relay._watch(end)

    def fill(self, sender: socket.socket) -> int:
        """Sends until nothing moves any more; returns the bytes."""
        sent, still = 0, 0
        while still < 100:
            try:
                sent += sender.send(bytes(1 << 16))
                still = 0
            except BlockingIOError:
                still += 1
            self.relay.turn(0)
        return sent

    def read(self, reader: socket.socket, count: int) -> int:
        """Returns the bytes that came, up to the end of the connection or `count`."""
        received = 0
        for _ in range(TURNS):
            self.relay.turn(0)
            try:
                data = reader.recv(1 << 16)
            except BlockingIOError:
                continue
            received += len(data)
            if received >= count or not data:
                return received
        return received


def pair(stack: ExitStack) -> tuple[socket.socket, _socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
    peer.setblocking(False)
    return peer, _socket.socket(fileno=accepted.detach())


@pytest.fixture
def relayed() -> Iterator[Relayed]:
    with ExitStack() as stack:
        yield Relayed(stack)


@pytest.mark.parametrize("from_server", [True, False])
def test_who_reads_late_and_says_nothing_gets_everything(
    relayed: Relayed, from_server: bool
) -> None:
    """It is ready to be written to, and has nothing to be read."""
    ends = (relayed.server, relayed.client)
    sender, reader = ends if from_server else ends[::-1]
    sent = relayed.fill(sender)
    assert relayed.read(reader, sent) == sent


def test_a_slow_reader_costs_one_piece_of_memory(relayed: Relayed) -> None:
    relayed.fill(relayed.server)
    unsent = [len(end.unsent) for end in relayed.relay._ends.values()]
    assert 0 < sum(unsent) <= module._CHUNK


@pytest.mark.parametrize("from_server", [True, False])
def test_one_direction_goes_on_when_the_other_has_ended(
    relayed: Relayed, from_server: bool
) -> None:
    ends = (relayed.server, relayed.client)
    sender, reader = ends if from_server else ends[::-1]
    reader.shutdown(socket.SHUT_WR)
    assert relayed.read(sender, 1) == 0, "the end has come through"
    sent = relayed.fill(sender)
    sender.shutdown(socket.SHUT_WR)
    assert relayed.read(reader, sent + 1) == sent
    assert relayed.relay._ends == {}
