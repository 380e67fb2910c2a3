"""Which nodes have an artifact or are fetching it, and from where the next one shall fetch it.

Each artifact's entries are kept by one node, which all find by the URL. The first node that asks is
sent to the object store; each later one to a node before it, of which each gets few at a time:

    store ──► a ──► b ──► d …
              └───► c ──► e …

The entries are hints: a node that has lost its artifact says so when it is asked.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from sagehen.base.clock import Clock

__all__ = ["ArtifactDirectory"]

MAX_URLS = 100_000
MAX_NODES = 256
"""of one version of an artifact; more are not needed as sources"""
FETCHES_AT_ONCE = 2
"""nodes that are sent to one node while they may still be fetching"""
FETCH_SECONDS = 300.0


@dataclass
class _Entry:
    source: str | None
    """the node that it was sent to; None: the object store"""
    asked_at: float
    """monotonic"""


_Entries = dict[str, _Entry]
"""by node, in the order of their questions"""


class ArtifactDirectory:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._urls: OrderedDict[str, dict[str, _Entries]] = OrderedDict()
        """by URL and the artifact's name"""

    def choose_source(
        self,
        url: str,
        name: str,
        node_id: str,
        gone: Iterable[str] = (),
        avoid: Iterable[str] = (),
    ) -> str | None:
        """Returns a node; None for the object store. Notes that `node_id` fetches the artifact."""
        entries = self._entries(url, name)
        for lost in gone:
            entries.pop(lost, None)
        now = self._clock.monotonic()
        source = self._choose(entries, node_id, frozenset(avoid), now)
        known = entries.get(node_id)
        if known is None:
            self._add(entries, node_id, _Entry(source, now))
        else:
            known.source, known.asked_at = source, now
        return source

    def note_holder(self, url: str, name: str, node_id: str) -> None:
        entries = self._entries(url, name)
        if node_id not in entries:
            self._add(entries, node_id, _Entry(None, self._clock.monotonic() - FETCH_SECONDS))

    def holders(self, url: str) -> tuple[str, ...]:
        """Returns the nodes that have any version, or are fetching it."""
        versions = self._urls.get(url, {})
        return tuple(dict.fromkeys(node for entries in versions.values() for node in entries))

    def _entries(self, url: str, name: str) -> _Entries:
        versions = self._urls.setdefault(url, {})
        self._urls.move_to_end(url)
        if len(self._urls) > MAX_URLS:
            self._urls.popitem(last=False)
        if name not in versions:
            # Nodes seldom want an older version than the one before.
            for old in list(versions)[:-1]:
                del versions[old]
        return versions.setdefault(name, {})

    @staticmethod
    def _add(entries: _Entries, node_id: str, entry: _Entry) -> None:
        if len(entries) < MAX_NODES:
            entries[node_id] = entry

    def _choose(
        self, entries: _Entries, node_id: str, avoid: frozenset[str], now: float
    ) -> str | None:
        busy: dict[str, int] = {}
        for other, entry in entries.items():
            if other != node_id and entry.source and now - entry.asked_at < FETCH_SECONDS:
                busy[entry.source] = busy.get(entry.source, 0) + 1
        candidates = [
            each
            for each in entries
            if each not in avoid and not _depends_on(entries, each, node_id)
        ]
        free = (each for each in candidates if busy.get(each, 0) < FETCHES_AT_ONCE)
        fallback = min(candidates, key=lambda each: busy.get(each, 0), default=None)
        return next(free, fallback)


def _depends_on(entries: _Entries, node: str, other: str) -> bool:
    """Whether `node` is `other`, or fetches from it, however indirectly."""
    current: str | None = node
    for _ in range(len(entries) + 1):
        if current == other:
            return True
        entry = entries.get(current) if current is not None else None
        if entry is None:
            return False
        current = entry.source
    return True
