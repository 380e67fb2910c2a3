"""The other nodes of the cluster as this node's agent knows and calls them."""

import ssl
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import server_name
from sagehen.base.errors import NotFound, Unavailable
from sagehen.frame.routes import NodeRoute
from sagehen.http1.call import exchange
from sagehen.http1.pool import Pool, Tls

__all__ = ["KnownNodes", "NodeCalls"]

_T = TypeVar("_T")


KEEPERS = 2
"""nodes that are asked for a directory entry, the second one while the first does not answer"""
POINTS_PER_NODE = 32


class _NodesOfTable(msgspec.Struct):
    nodes: dict[str, NodeRoute] = {}


class KnownNodes:
    """The nodes in the route table that control sends to each node."""

    def __init__(self, own_id: str, routes_file: Path) -> None:
        self.own_id = own_id
        self._file = routes_file
        self._file_version: tuple[int, int, int] | None = None
        self._addresses: Mapping[str, str] = {}
        self._ring: list[tuple[bytes, str]] = []

    def addresses(self) -> Mapping[str, str]:
        """Returns where the agents of all nodes are reached, with this one's."""
        try:
            status = self._file.stat()
            file_version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if file_version != self._file_version:
                table = msgspec.json.decode(self._file.read_bytes(), type=_NodesOfTable)
                self._addresses = {
                    node_id: route.agent_address
                    for node_id, route in sorted(table.nodes.items())
                    if route.agent_address
                }
                self._file_version = file_version
                self._ring = _make_ring(self._addresses)
        except (OSError, ValueError):
            pass  # the last one stays, as in gateways
        return self._addresses

    def keepers(self, url: str) -> list[str]:
        """Returns the nodes that keep the directory entries of a URL, the first one first.

        All nodes that know the same nodes agree, and few entries move when a node comes or goes.
        """
        nodes = len(self.addresses())
        found: dict[str, None] = {}
        start = bisect_left(self._ring, (_point(url), ""))
        for step in range(len(self._ring)):
            found.setdefault(self._ring[(start + step) % len(self._ring)][1])
            if len(found) == min(KEEPERS, nodes):
                break
        return list(found)


def _make_ring(node_ids: Iterable[str]) -> list[tuple[bytes, str]]:
    return sorted(
        (_point(f"{node_id}\0{number}"), node_id)
        for node_id in node_ids
        for number in range(POINTS_PER_NODE)
    )


def _point(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


class NodeCalls:
    """Calls of other nodes' agents, each over a connection of its own."""

    def __init__(self, context: ssl.SSLContext, clock: Clock) -> None:
        self.context = context
        self._clock = clock

    async def ask(
        self,
        node_id: str,
        address: str,
        path: str,
        kind: type[_T],
        *,
        request: object = None,
        timeout_seconds: float,
    ) -> _T:
        """POSTs a request, or GETs without one. Raises NotFound or Unavailable."""
        answer = await self._call(node_id, address, path, request, timeout_seconds)
        try:
            return msgspec.json.decode(answer, type=kind)
        except ValueError as error:
            raise Unavailable(f"The answer of node {node_id} is not valid: {error}") from error

    async def tell(
        self, node_id: str, address: str, path: str, message: object, timeout_seconds: float
    ) -> None:
        """POSTs a message. Raises NotFound or Unavailable."""
        await self._call(node_id, address, path, message, timeout_seconds)

    async def _call(
        self, node_id: str, address: str, path: str, request: object, timeout_seconds: float
    ) -> bytes:
        body = b"" if request is None else msgspec.json.encode(request)
        method = "GET" if request is None else "POST"
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        tls = Tls(self.context, server_name(node_id))
        pool = Pool(f"tcp:{address}", self._clock, tls=tls)
        try:
            answer = await exchange(pool, [head, body], f"{method} {path}", timeout_seconds)
        finally:
            pool.abort()
        if answer.status == 404:
            raise NotFound(f"The node {node_id} does not have it.")
        if answer.status >= 300:
            raise Unavailable(f"The node {node_id} answered with HTTP {answer.status}.")
        return answer.body
