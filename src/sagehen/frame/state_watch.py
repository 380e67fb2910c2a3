"""Keeps an agent's reports, of its instances or of its jobs, fresh by long polling."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypeVar

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.base.retry import Backoff

__all__ = ["StateWatch", "Versioned"]

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 5.0
FIRST_AWAY_SECONDS = 0.02
LONGEST_AWAY_SECONDS = 0.5


class Versioned(Protocol):
    """An answer whose version changes with its content."""

    @property
    def version(self) -> int: ...


Answer = TypeVar("Answer", bound=Versioned)
Report = TypeVar("Report")


class StateWatch(Generic[Answer, Report]):
    """Polls the agent; calls `on_change` when `reports` changes."""

    def __init__(
        self,
        poll: Callable[[int | None, float], Awaitable[Answer]],
        by_id: Callable[[Answer], Mapping[str, Report]],
        clock: Clock,
        on_change: Callable[[], None],
        quiet: bool = False,
    ) -> None:
        """Args:
        poll: takes the known version and the seconds to wait for another one.
        quiet: do not log that the agent is away: another watch does.
        """
        self._poll = poll
        self._by_id = by_id
        self._clock = clock
        self._on_change = on_change
        self._quiet = quiet
        self._version: int | None = None
        self._is_away = False
        self._backoff = Backoff(FIRST_AWAY_SECONDS, LONGEST_AWAY_SECONDS)
        self.reports: Mapping[str, Report] | None = None
        """None while the agent does not answer"""

    async def run(self) -> None:
        while True:
            try:
                await self._refresh()
            except Exception as error:
                self._lose(error)
                await self._clock.sleep(self._backoff.next_seconds())

    async def _refresh(self) -> None:
        # The client has a timeout, too: an agent that hangs counts as away.
        answer = await self._poll(self._version, LONG_POLL_SECONDS)
        if self._is_away and not self._quiet:
            log.info("The agent answers again.", extra={"action": "agent_back"})
        self._is_away = False
        self._backoff.reset()
        if answer.version != self._version:
            self._version = answer.version
            self.reports = self._by_id(answer)
            self._on_change()

    def _lose(self, error: Exception) -> None:
        was_away, self._is_away = self._is_away, True
        if not isinstance(error, SagehenError):
            about = {"action": "watch_failed"}
            log.error("Watching the agent failed and is tried again.", extra=about, exc_info=error)
        if was_away:
            return
        # At start the agent is expected to be missing.
        level = logging.INFO if self.reports is None else logging.WARNING
        level = logging.DEBUG if self._quiet else level
        log.log(level, "The agent is away.", extra={"action": "agent_away", "reason": str(error)})
        # Another agent may answer next, whose versions are unrelated.
        self._version = None
        self.reports = None
        self._on_change()
