"""Keeps the agent's reports of its instances or jobs fresh by long polling."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.base.retry import backoff_seconds
from sagehen.frame.container_specs import InstanceReport, InstanceSpec

__all__ = ["AgentWatch", "InstanceReports", "StateWatch", "WatchedAgent", "instances_by_id"]

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 5.0
FIRST_AWAY_SECONDS = 0.01
LONGEST_AWAY_SECONDS = 0.5


class Versioned(Protocol):
    """An answer whose version changes with its content."""

    @property
    def version(self) -> int: ...


class InstanceReports(Versioned, Protocol):
    """The agent's answer about instances."""

    @property
    def instances(self) -> Sequence[InstanceReport]: ...


class WatchedAgent(Protocol):
    """The agent's methods for instances; all raise Unavailable while it is away."""

    async def instances(
        self, since: int | None = None, wait_seconds: float = 0
    ) -> InstanceReports: ...

    async def put_instance(self, spec: InstanceSpec) -> None: ...

    async def delete_instance(self, instance_id: str) -> None: ...


Answer = TypeVar("Answer", bound=Versioned)
Report = TypeVar("Report")


class StateWatch(Generic[Answer, Report]):
    """Polls the agent; calls `on_change` when `reports` changes."""

    def __init__(
        self,
        ask: Callable[[int | None, float], Awaitable[Answer]],
        by_id: Callable[[Answer], Mapping[str, Report]],
        clock: Clock,
        on_change: Callable[[], None],
        quiet: bool = False,
    ) -> None:
        """Args:
        ask: takes the known version and how long to wait for another.
        quiet: do not log that the agent is away: another watch does.
        """
        self._ask_agent = ask
        self._by_id = by_id
        self._clock = clock
        self._on_change = on_change
        self._quiet = quiet
        self._version: int | None = None
        self._failures = 0
        self.reports: Mapping[str, Report] | None = None
        """None while the agent does not answer."""

    async def run(self) -> None:
        while True:
            try:
                await self._ask()
            except Exception as error:
                self._lose(error)
                wait = backoff_seconds(self._failures, FIRST_AWAY_SECONDS, LONGEST_AWAY_SECONDS)
                await self._clock.sleep(wait)

    async def _ask(self) -> None:
        # The client has a timeout, too: an agent that hangs counts as away.
        answer = await self._ask_agent(self._version, LONG_POLL_SECONDS)
        if self._failures and not self._quiet:
            log.info("The agent answers again.", extra={"action": "agent_back"})
        self._failures = 0
        if answer.version != self._version:
            self._version = answer.version
            self.reports = self._by_id(answer)
            self._on_change()

    def _lose(self, error: Exception) -> None:
        self._failures += 1
        if not isinstance(error, SagehenError):
            about = {"action": "watch_failed"}
            log.error("Watching the agent failed and is tried again.", extra=about, exc_info=error)
        if self._failures > 1:
            return
        # At start the agent is expected to be missing.
        level = logging.INFO if self.reports is None else logging.WARNING
        level = logging.DEBUG if self._quiet else level
        log.log(level, "The agent is away.", extra={"action": "agent_away", "reason": str(error)})
        # Another agent may answer next, whose versions are unrelated.
        self._version = None
        self.reports = None
        self._on_change()


AgentWatch = StateWatch[InstanceReports, InstanceReport]


def instances_by_id(answer: InstanceReports) -> dict[str, InstanceReport]:
    return {one.instance_id: one for one in answer.instances}
