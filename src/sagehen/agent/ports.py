"""The ports that containers are told of: where to listen, and spare ones that nobody else takes."""

import contextlib
import socket
from dataclasses import dataclass

from sagehen.agent.faults import CannotStart

__all__ = ["PortRange", "Ports"]

FIRST, LAST = 12_000, 31_999
"""Below those that the kernel gives to clients."""
PER_CONTAINER = 50


@dataclass(frozen=True)
class PortRange:
    """Of one container."""

    first: int
    """Where it listens, unless on a Unix socket."""
    last: int
    """Nobody's: held by the agent, so that agents of other servers leave the range alone."""

    @property
    def spare(self) -> str:
        """As `SAGEMAKER_SAFE_PORT_RANGE` has them: both ends included."""
        return f"{self.first + 1}-{self.last - 1}"


class Ports:
    """The ranges of this node's containers."""

    def __init__(self) -> None:
        self._held: dict[PortRange, socket.socket] = {}
        self._next = FIRST

    def take(self) -> PortRange:
        """A range in which nobody listens. Raises CannotStart: there is none."""
        for _ in range(FIRST, LAST, PER_CONTAINER):
            ports = PortRange(self._next, self._next + PER_CONTAINER - 1)
            # Onwards, since ports may be of no use for a while after their use.
            self._next = FIRST if ports.last >= LAST else ports.last + 1
            with contextlib.suppress(OSError):
                self._held[ports] = _claim(ports)
                return ports
        raise CannotStart(f"no {PER_CONTAINER} ports in a row are free from {FIRST} to {LAST}")

    def give_back(self, ports: PortRange) -> None:
        """Nothing happens when it has been."""
        held = self._held.pop(ports, None)
        if held is not None:
            held.close()


def _claim(ports: PortRange) -> socket.socket:
    """The last, bound. Raises OSError: one of them is somebody's."""
    with contextlib.ExitStack() as on_failure:
        held = on_failure.enter_context(socket.socket())
        held.bind(("", ports.last))
        for port in range(ports.first, ports.last):
            with socket.socket() as probe:
                probe.bind(("", port))
        on_failure.pop_all()
    return held
