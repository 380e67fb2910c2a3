"""Fetches artifacts from other nodes of the cluster, and finds out which nodes have them.

Two messages and the content: the keeper of the artifact's directory entries names a source;
the source says when it has the artifact. At any failure another source is tried, and then the
object store.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from sagehen.agent.artifacts.artifacts import Fetched
from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.neighbours.directory import ArtifactDirectory
from sagehen.agent.neighbours.download import NeighbourError, download
from sagehen.agent.neighbours.messages import ArtifactState, Holders, Source, SourceRequest
from sagehen.agent.neighbours.nodes import KnownNodes, NodeCalls
from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import NotFound, Unavailable

__all__ = ["NeighbourFetcher"]

log = logging.getLogger(__name__)

SOURCES_TRIED = 3
ASK_SECONDS = 2.0
POLL_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
"""for a node whose copy does not grow, and as long for each node through which its copy comes: the
one next to the slow one gives up first, and the others have it from that one"""
SLOWEST_COPY_BYTES_PER_SECOND = 2**18
LONGEST_WAIT_SECONDS = 1800.0
"""for a node that unpacks it, or does not say how much it has"""
DOWNLOADS_AT_ONCE = 8

_T = TypeVar("_T")


class NeighbourFetcher:
    """The neighbours of an ArtifactCache.

    Args:
        directory: of the artifacts whose entries this node keeps.
    """

    def __init__(
        self, nodes: KnownNodes, calls: NodeCalls, directory: ArtifactDirectory, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._calls = calls
        self._directory = directory
        self._clock = clock
        self._waits: dict[str, ArtifactState] = {}
        self._threads = Threads(DOWNLOADS_AT_ONCE, "neighbours")

    def close(self) -> None:
        self._threads.close()

    def waiting(self, name: str) -> ArtifactState:
        """Tells through which nodes the artifact comes that is being fetched, and how far it is."""
        return self._waits.get(name, _NOT_WAITING)

    async def holders(self, url: str) -> tuple[str, ...]:
        """Returns the nodes that have the model data, as far as is known."""
        for node_id in self._nodes.keepers(url):
            if node_id == self._nodes.own_id:
                return self._directory.holders(url)
            try:
                path = "/artifact-directory?" + urlencode({"url": url})
                return (await self._ask(node_id, path, Holders)).nodes
            except (Unavailable, NotFound):
                continue
        return ()

    async def fetch(self, name: str, url: str, folder: Path, max_bytes: int) -> Fetched | None:
        """Fills the empty `folder`; None if the object store is to be asked.

        Raises:
            OSError: writing failed.
        """
        if not self._has_neighbours:
            return None
        gone: list[str] = []
        avoid: list[str] = []
        try:
            for _ in range(SOURCES_TRIED):
                source = await self._find_source(name, url, gone, avoid)
                if source is None:
                    return None
                try:
                    return await self._fetch_from(source, name, folder, max_bytes)
                except NotFound:
                    gone.append(source)
                except (NeighbourError, Unavailable) as error:
                    about = {"action": "neighbour_failed", "node": source, "artifact": name}
                    log.warning("%s cannot be fetched from a node: %s.", url, error, extra=about)
                    avoid.append(source)
                    await asyncio.to_thread(_empty, folder)
            return None
        finally:
            self._waits.pop(name, None)

    @property
    def _has_neighbours(self) -> bool:
        return any(node != self._nodes.own_id for node in self._nodes.addresses())

    async def _find_source(
        self, name: str, url: str, gone: Sequence[str], avoid: Sequence[str]
    ) -> str | None:
        """Returns None for the object store."""
        own_id = self._nodes.own_id
        request = SourceRequest(
            url=url, name=name, node_id=own_id, gone=tuple(gone), avoid=tuple(avoid)
        )
        for node_id in self._nodes.keepers(url):
            if node_id == own_id:
                return self._directory.choose_source(url, name, own_id, gone, avoid)
            try:
                path = "/artifact-directory/sources"
                return (await self._ask(node_id, path, Source, request)).node_id
            except (Unavailable, NotFound) as error:
                about = {"action": "directory_away", "node": node_id, "reason": str(error)}
                log.info("A node does not say who has an artifact.", extra=about)
        return None

    async def _ask(self, node_id: str, path: str, kind: type[_T], request: object = None) -> _T:
        address = self._nodes.addresses().get(node_id)
        if address is None:
            raise Unavailable(f"The node {node_id} has left.")
        return await self._calls.ask(
            node_id, address, path, kind, request=request, timeout_seconds=ASK_SECONDS
        )

    async def _fetch_from(self, source: str, name: str, folder: Path, max_bytes: int) -> Fetched:
        """Raises NotFound, NeighbourError, Unavailable or OSError."""
        address = self._nodes.addresses().get(source)
        if address is None:
            raise NotFound(f"The node {source} has left.")
        digest = await self._wait_until_there(source, address, name)
        cancelled = threading.Event()
        fetching = partial(
            download,
            source,
            address,
            f"/artifacts/{name}/content",
            digest,
            folder,
            self._calls.context,
            self._clock.monotonic,
            cancelled,
            max_bytes=max_bytes,
        )
        running = asyncio.ensure_future(self._threads.run(fetching))
        try:
            size = await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelled.set()
            # It must not go on writing into a folder that is removed.
            await asyncio.wait([running])
            raise
        log.info("Fetched artifact %s from node %s.", name, source)
        return Fetched(size, digest)

    async def _wait_until_there(self, source: str, address: str, name: str) -> str:
        """Returns the digest of the artifact once the source has it."""
        growth = CopyGrowth(self._clock.monotonic())
        self._waits[name] = ArtifactState(waits_for=(source,))
        path = f"/artifacts/{name}?" + urlencode({"wait_seconds": POLL_SECONDS})
        while True:
            seconds = POLL_SECONDS + ASK_SECONDS
            state = await self._calls.ask(
                source, address, path, ArtifactState, timeout_seconds=seconds
            )
            if state.digest is not None:
                return state.digest
            if self._nodes.own_id in state.waits_for:
                raise NeighbourError("it waits for this node")
            if growth.has_stopped(state, self._clock.monotonic()):
                raise NeighbourError("it is still fetching the artifact itself, and not quickly")
            self._waits[name] = ArtifactState(
                waits_for=(source, *state.waits_for), received_bytes=state.received_bytes
            )


class CopyGrowth:
    """Tells whether another node's copy of an artifact still grows.

    The bytes are those that come from the store: copies between nodes, and unpacking, have their
    own bounds.
    """

    def __init__(self, now: float) -> None:
        """`now`: monotonic seconds."""
        self._bytes: int | None = None
        self._since = now

    def has_stopped(self, state: ArtifactState, now: float) -> bool:
        received, before = state.received_bytes, self._bytes
        patience = PATIENCE_SECONDS * (1 + len(state.waits_for))
        if received is None:
            is_new, patience = before is not None, LONGEST_WAIT_SECONDS
        else:
            enough = PATIENCE_SECONDS * SLOWEST_COPY_BYTES_PER_SECOND
            # Less than before: it comes from another node now.
            is_new = before is None or not before <= received < before + enough
        if is_new:
            self._bytes, self._since = received, now
        return now - self._since > patience


_NOT_WAITING = ArtifactState()


def _empty(folder: Path) -> None:
    remove_tree(folder)
    folder.mkdir(parents=True)
