"""The version of a list of reports, with long polls."""

import asyncio

from sagehen.agent.messages import InstanceList
from sagehen.base.clock import Clock
from sagehen.frame.container_specs import InstanceReport

__all__ = ["Changes", "ListHistory"]

MAX_WAIT_SECONDS = 60.0
COALESCE_SECONDS = 0.05
MAX_LISTS = 8
"""versions whose lists are kept; whoever knows an older one gets the whole list"""


class Changes:
    """Counts a list's changes. Must be used from the event loop."""

    def __init__(self, clock: Clock) -> None:
        # From the time: never the version that an earlier agent's waiters know.
        self.version = int(clock.now() * 1000)
        self._changed = asyncio.Event()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def announce(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def announce_soon(self) -> None:
        """Announces with the next change, or after COALESCE_SECONDS.

        Each announcement makes every reader work; a short job would cause seven.
        """
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self.announce)

    def close(self) -> None:
        """Later waits return at once."""
        self._closed = True
        self.announce()

    async def wait(self, since: int, seconds: float) -> None:
        """Returns once the version is not `since`, or after `seconds`."""
        if self.version != since or self._closed:
            return
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({changed}, timeout=min(max(seconds, 0), MAX_WAIT_SECONDS))
        finally:
            changed.cancel()


class ListHistory:
    """The last lists of instances, to tell those who know one of them only what has changed.

    A version has one list, the first that was answered: what changes before the next announcement
    is in the list of that one.
    """

    def __init__(self) -> None:
        self._lists: dict[int, dict[str, InstanceReport]] = {}

    def answer(self, since: int | None, now: InstanceList) -> InstanceList:
        """Returns the changes since a version; the whole list, where that version is not known."""
        reports = self._lists.get(now.version)
        if reports is None:
            reports = {each.instance_id: each for each in now.instances}
            self._lists[now.version] = reports
            if len(self._lists) > MAX_LISTS:
                del self._lists[next(iter(self._lists))]
        before = None if since is None else self._lists.get(since)
        if before is None:
            return InstanceList(version=now.version, instances=tuple(reports.values()))
        return InstanceList(
            version=now.version,
            instances=tuple(
                report
                for key, report in reports.items()
                if (known := before.get(key)) is not report and known != report
            ),
            since=since,
            gone=tuple(key for key in before if key not in reports),
        )
