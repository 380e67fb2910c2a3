"""Which nodes have a model of a multi-model endpoint on disk: a request for it goes there, rather
than to a node that must fetch it first."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.http1.call import call
from sagehen.http1.pool import Pool

__all__ = ["ModelNodes"]

log = logging.getLogger(__name__)

FRESH_SECONDS = 10.0
"""then the nodes are asked for again, while requests go on by the last answer"""
ASK_SECONDS = 0.5
"""the longest that a request waits, which then goes where it would without an answer"""
MAX_MODELS = 100_000


class _Known(NamedTuple):
    nodes: frozenset[str]
    asked_at: float
    """monotonic"""


class _Holders(msgspec.Struct):
    nodes: frozenset[str]


class ModelNodes:
    """Args:
    agent: of this machine, which finds the nodes out.
    """

    def __init__(self, agent: Pool, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """by the URL of the model data"""
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, url: str) -> frozenset[str]:
        """Returns no node for a model that has not been asked for."""
        known = self._known.get(url)
        return frozenset() if known is None else known.nodes

    def ask(self, url: str, answered: Callable[[], None]) -> bool:
        """Returns whether the caller must wait for `answered`: the first time only."""
        known = self._known.get(url)
        if known is None:
            self._waiting.setdefault(url, []).append(answered)
            if len(self._waiting[url]) == 1:
                self._begin(url)
            return True
        if self._clock.monotonic() - known.asked_at > FRESH_SECONDS and url not in self._waiting:
            self._waiting[url] = []
            self._begin(url)
        return False

    def abort(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._agent.abort()

    def _begin(self, url: str) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(url))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, url: str) -> None:
        nodes = self.find(url)
        try:
            path = "/artifact-directory?" + urlencode({"url": url})
            answer = await call(self._agent, "GET", path, b"", ASK_SECONDS)
            if answer.status == 200:
                nodes = msgspec.json.decode(answer.body, type=_Holders).nodes
        except (Unavailable, ValueError) as error:
            log.debug("The nodes that have a model are not known: %s", error)
        self._known[url] = _Known(nodes, self._clock.monotonic())
        self._known.move_to_end(url)
        if len(self._known) > MAX_MODELS:
            self._known.popitem(last=False)
        for answered in self._waiting.pop(url):
            answered()
