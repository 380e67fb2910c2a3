"""How a container is reached: over a link, or over HTTP/1.1 if the container is not ours."""

from collections.abc import Callable
from typing import Protocol

from sagehen.base.clock import Clock
from sagehen.http1.client import Receiver
from sagehen.http1.pool import Connector, Pool, open_connection
from sagehen.link.client import LinkClient

__all__ = [
    "INVOCATIONS",
    "Upstream",
    "UpstreamWaiter",
    "Upstreams",
    "invoke_path",
    "open_upstreams",
]

INVOCATIONS = b"/invocations"


class Upstream(Protocol):
    """Carries one request to a container, and its answer back."""

    not_begun: bool
    """lost, and the container provably did not begin the request"""
    fault: str | None
    """why the answer could not be read, if that is why it broke"""

    def send(
        self, receiver: Receiver, path: bytes, header_lines: bytes, body: list[bytes], size: int
    ) -> None:
        """POSTs a body of `size` bytes: `body`, and what follows by `write`."""

    def write(self, data: bytes) -> None: ...

    def pause(self) -> None:
        """Stops the answer after what is on its way."""

    def resume(self) -> None: ...

    def abandon(self) -> None:
        """Nobody wants the answer any more."""


class UpstreamWaiter(Protocol):
    """A request that waits for an upstream."""

    def connected(self, upstream: Upstream) -> None: ...

    def refused(self) -> None:
        """Nothing was sent."""


class Upstreams(Protocol):
    """The connections to one container."""

    def take(self, waiter: UpstreamWaiter) -> Upstream | None:
        """Returns None if `waiter` will be called."""

    def forget(self, waiter: UpstreamWaiter) -> None: ...

    def close_idle(self, now: float) -> None:
        """`now`: monotonic seconds."""

    def close(self) -> None:
        """Closes idle connections now, and others when they become idle."""

    @property
    def is_done(self) -> bool:
        """Whether they are closed, and the last one is gone."""

    def abort(self) -> None: ...


def open_upstreams(
    address: str,
    clock: Clock,
    slots_changed: Callable[[int], None] = lambda _: None,
    reuses_connections: bool = True,
    connector: Connector = open_connection,
) -> Upstreams:
    """Args:
    address: `link:/path`, or another one that `connector` knows.
    slots_changed: called with the requests that the container takes at once, if it says so.
    reuses_connections: of HTTP; a link carries many requests in any case.
    """
    if address.startswith("link:"):
        return LinkClient(address, clock, slots_changed, connector)
    return Pool(address, clock, reuses_connections, connector=connector)


def invoke_path(model_name: str | None) -> bytes:
    """`model_name`: in a container of many models."""
    return INVOCATIONS if model_name is None else b"/models/%b/invoke" % model_name.encode()
