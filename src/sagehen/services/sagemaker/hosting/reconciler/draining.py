"""Instances that leave the routes go on for the requests that gateways have sent to them.

in the routes ──leaves──► gets no new requests ──its last request ends, or its time is over──► stops
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

__all__ = ["Draining"]

log = logging.getLogger(__name__)

_REMEMBERED = 1000
"""instances that are in the log already"""


class Draining:
    """Tells which instances have requests, and counts those that were cut off.

    Args:
        seconds: the longest time that an instance goes on after it has left the routes.
        outstanding: counts the requests in a column of the gateways' in-flight table.
        on_nodes: returns those of the given instances that have requests, in a cluster: the table
            of this machine does not count all.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        outstanding: Callable[[int], int] = lambda column: 0,
        on_nodes: Callable[[Collection[str]], frozenset[str]] | None = None,
    ) -> None:
        self.seconds = seconds
        self._outstanding = outstanding
        self._on_nodes = on_nodes
        self._draining: deque[str] = deque(maxlen=_REMEMBERED)
        self._cut_off: deque[str] = deque(maxlen=_REMEMBERED)
        self.hits = 0
        """instances that were stopped with requests"""

    def called(self, columns: Mapping[str, Iterable[int]]) -> frozenset[str]:
        """Returns the instances with requests, of those whose columns are given by id."""
        if self._on_nodes is not None:
            return self._on_nodes(columns.keys())
        return frozenset(
            instance_id
            for instance_id, own in columns.items()
            if any(self._outstanding(column) > 0 for column in own)
        )

    def note(self, endpoint: str, draining: Iterable[str], cut_off: Iterable[str]) -> None:
        """Logs each instance once that goes on, or is stopped with requests; counts the latter."""
        for instance_id in _new(draining, self._draining):
            extra = {"action": "draining", "endpoint": endpoint, "instance": instance_id}
            log.info("An instance that left goes on for its requests.", extra=extra)
        for instance_id in _new(cut_off, self._cut_off):
            self.hits += 1
            extra = {"action": "drain_cut_off", "endpoint": endpoint, "instance": instance_id}
            log.warning(
                "An instance that left is stopped with requests: %g s are over "
                "(drain_timeout_seconds).",
                self.seconds,
                extra=extra,
            )


def _new(instance_ids: Iterable[str], known: deque[str]) -> list[str]:
    new = [instance_id for instance_id in instance_ids if instance_id not in known]
    known.extend(new)
    return new
