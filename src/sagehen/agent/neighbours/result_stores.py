"""Copies the stores of offline results to this node, so that its gateways answer from them.

The leading control builds a store in the home of its own machine, and names it in the route table.
Each other node copies it from there, or from another node that has it already.

A copy has a mark beside it, because the folder may also be that of a control which builds stores:
only what has a mark is removed here, when the route table has not named it for a while.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from sagehen.agent.neighbours.download import NeighbourError, download_file
from sagehen.agent.neighbours.nodes import NodeCalls
from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import NotFound
from sagehen.base.retry import Backoff
from sagehen.frame.offline_results.store import ResultStore, StoreError, copy_mark
from sagehen.frame.routes import RouteFileReader, RouteTable

__all__ = ["StoreCopies", "stores_route"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""after failures"""
FORGET_SECONDS = 600.0
"""An older store serves until a newer one is built; and a table may be that of a leader that has
just begun."""
_PATH = "/offline-results/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.db")


def stores_route(folder: Path) -> Route:
    """For the agents of other nodes."""

    async def read(request: Request) -> Response:
        name = request.path_params["name"]
        if not _NAME.fullmatch(name) or not (folder / name).is_file():
            raise NotFound("There is no such store of offline results.")
        return FileResponse(folder / name, media_type="application/octet-stream")

    return Route(_PATH + "{name}", read, methods=["GET"])


class StoreCopies:
    """The stores in `folder` that other nodes have built.

    Args:
        routes_file: which the node's gateways follow; `routes` reads it.
    """

    def __init__(
        self,
        own_id: str,
        folder: Path,
        routes_file: Path,
        routes: RouteFileReader,
        calls: NodeCalls,
        clock: Clock,
    ) -> None:
        self._own_id = own_id
        self._folder = folder
        self._routes_file = routes_file
        self._reader = routes
        self._table: RouteTable | None = None
        self._routed: frozenset[str] = frozenset()
        self._calls = calls
        self._clock = clock
        self._threads = Threads(1, "offline-results")
        self._unrouted_since: dict[str, float] = {}
        """by name, of copies that the route table does not name; monotonic"""

    async def run(self) -> None:
        """Runs until cancelled."""
        backoff = Backoff(LOOK_SECONDS, LONGEST_PAUSE_SECONDS)
        try:
            while True:
                is_whole = False
                try:
                    is_whole = await self.look()
                except Exception:
                    log.exception("Offline results could not be copied.", extra=_ABOUT)
                if is_whole:
                    backoff.reset()
                await self._clock.sleep(LOOK_SECONDS if is_whole else backoff.next_seconds())
        finally:
            self._threads.close()

    async def look(self) -> bool:
        """Copies what is missing, and removes what is not needed. Returns whether nothing is
        missing."""
        self._reader.refresh_if_old()
        if not self._reader.is_read:
            return True
        table = self._reader.table
        if table is not self._table:
            self._table, self._routed = table, _routed(table)
        missing = [name for name in sorted(self._routed) if not (self._folder / name).exists()]
        copied = [name for name in missing if await self._copy(name, table)]
        if copied:
            # Gateways try again with each new table to open what was missing.
            os.utime(self._routes_file)
        self._remove_unrouted()
        return len(copied) == len(missing)

    async def _copy(self, name: str, table: RouteTable) -> bool:
        draft = self._folder / f"{name}.copy"
        for node_id, address in _sources(table, self._own_id):
            cancelled = threading.Event()
            work = partial(
                download_file,
                node_id,
                address,
                _PATH + name,
                draft,
                self._calls.context,
                self._clock.monotonic,
                cancelled,
            )
            try:
                await self._run_to_end(work, cancelled)
                ResultStore(draft).close()
                copy_mark(self._folder / name).touch()
                draft.replace(self._folder / name)
            except (NeighbourError, StoreError, OSError) as error:
                about = _ABOUT | {"node": node_id, "file": name, "reason": str(error)}
                log.info("A node does not give a store of offline results.", extra=about)
            else:
                log.info("Copied a store of offline results.", extra=_ABOUT | {"file": name})
                return True
            finally:
                draft.unlink(missing_ok=True)
        log.warning("No node gives a store of offline results.", extra=_ABOUT | {"file": name})
        return False

    async def _run_to_end(self, work: partial[None], cancelled: threading.Event) -> None:
        running = asyncio.ensure_future(self._threads.run(work))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([running])
            raise

    def _remove_unrouted(self) -> None:
        now = self._clock.monotonic()
        copies = [mark.with_suffix("").name for mark in self._folder.glob("*.db.copied")]
        self._unrouted_since = {
            name: self._unrouted_since.get(name, now) for name in copies if name not in self._routed
        }
        for name, since in self._unrouted_since.items():
            if now - since >= FORGET_SECONDS:
                (self._folder / name).unlink(missing_ok=True)
                copy_mark(self._folder / name).unlink(missing_ok=True)
                log.info("Removed a store of offline results.", extra=_ABOUT | {"file": name})


def _routed(table: RouteTable) -> frozenset[str]:
    return frozenset(
        variant.offline_results.file
        for route in table.routes.values()
        for variant in route.all_variants
        if variant.offline_results is not None and _NAME.fullmatch(variant.offline_results.file)
    )


def _sources(table: RouteTable, own_id: str) -> Iterable[tuple[str, str]]:
    """Yields the other nodes with their agents' addresses, the leader's first."""
    nodes = sorted(table.nodes.items(), key=lambda each: (not each[1].control_address, each[0]))
    for node_id, node in nodes:
        if node_id != own_id and node.agent_address:
            yield node_id, node.agent_address


_ABOUT: dict[str, object] = {"action": "copy_offline_results"}
