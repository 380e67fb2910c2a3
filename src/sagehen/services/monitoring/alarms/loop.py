"""The loop that evaluates alarms: each minute, those with short periods every ten seconds, and new
ones at once.

wake (an alarm is put · time) → hold the lease → pass: rows and samples → states and their actions
"""

import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.frame.leased_loop import LeasedLoop, keep_sweeping
from sagehen.services.monitoring.alarms import history, store
from sagehen.services.monitoring.alarms.actions import AlarmActions
from sagehen.services.monitoring.alarms.composite.cascade import end_suppression_periods
from sagehen.services.monitoring.alarms.evaluation_pass import (
    EvaluationPass,
    minute_of,
    seconds_to_next,
)
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = ["LEASE_NAME", "AlarmLoop"]

LEASE_NAME = "alarms"
PRUNE_SECONDS = 3600.0
FINE_SECONDS = 10
MINUTE_SECONDS = 60


class AlarmLoop(LeasedLoop):
    """Evaluates alarms, and ends the periods of suppressed ones."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        leadership: Leadership,
        actions: AlarmActions,
        max_history_items: int,
    ) -> None:
        super().__init__(database, clock, LEASE_NAME, leadership)
        self._database = database
        self._actions = actions
        self._max_history_items = max_history_items
        self._pass = EvaluationPass(database, self._lease.lease, actions)
        self._lock = threading.Lock()
        self._put: set[str] = set()
        """alarms to evaluate at once"""
        self._minute: int | None = None
        """last evaluated; None before the first time"""
        self._fine_slot: int | None = None
        self._alarms = 0
        self._fine: frozenset[str] = frozenset()
        self._periods_end_at: float | None = None
        """when the first period of a suppressed alarm ends"""
        self._may_be_suppressed = True
        database.listen(store.ALARMS_CHANGED, self._on_change)

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [keep_sweeping(self._prune, PRUNE_SECONDS, self._clock, "history of alarms")]

    async def stand_by(self) -> None:
        """Forgets what it knows: another control evaluates."""
        self._minute = self._fine_slot = None
        self._may_be_suppressed = True
        self._take_put()

    async def step(self) -> float | None:
        now = self._clock.now()
        minute, fine_slot = minute_of(now), minute_of(now, FINE_SECONDS)
        if minute != self._minute:
            self._may_be_suppressed = True  # Another control's hint may have been lost.
            await self._evaluate(None, now)
            self._minute, self._fine_slot = minute, fine_slot
        elif fine_slot != self._fine_slot and self._fine:
            await self._evaluate(self._fine, now)
            self._fine_slot = fine_slot
        elif self._put:
            await self._evaluate(self._take_put(), now)
        await self._end_periods(now)
        if not self._alarms and not self._put and self._periods_end_at is None:
            # A minute's end changes nothing; a put alarm hints.
            return None
        return seconds_to_next(now, FINE_SECONDS if self._fine else MINUTE_SECONDS)

    async def _evaluate(self, names: frozenset[str] | None, now: float) -> None:
        put = self._take_put()
        try:
            seen = await in_thread(lambda: self._pass.run(names and names | put, now))
        except BaseException:
            with self._lock:
                self._put |= put | (names or frozenset())
            raise
        if names is None:
            self._alarms, self._fine = seen.alarms, seen.fine
        else:
            self._alarms = max(self._alarms, seen.alarms)
            self._fine |= seen.fine

    def _take_put(self) -> frozenset[str]:
        with self._lock:
            taken, self._put = frozenset(self._put), set()
        return taken

    async def _end_periods(self, now: float) -> None:
        ends_at = self._periods_end_at
        if not self._may_be_suppressed and (ends_at is None or now < ends_at):
            return
        self._may_be_suppressed = False
        try:
            self._periods_end_at = await in_thread(lambda: self._end_due_periods(now))
        except BaseException:
            self._may_be_suppressed = True
            raise

    def _end_due_periods(self, now: float) -> float | None:
        """Returns when the next period ends."""
        with self._database.read() as connection:
            waiting = store.suppressed_by_period(connection)
        ends = [
            record.suppressed_until for record in waiting if record.suppressed_until is not None
        ]
        if any(end <= now for end in ends):
            with self._database.write() as connection:
                self._lease.lease.check(connection, now)
                end_suppression_periods(connection, self._actions, now)
        return min((end for end in ends if end > now), default=None)

    def _on_change(self, name: str) -> None:
        """Runs in the thread that has committed."""
        if name:
            with self._lock:
                self._put.add(name)
        else:
            self._may_be_suppressed = True
        self.hint()

    async def _prune(self) -> None:
        """Several controls may do so at once."""
        before = self._clock.now() - history.HISTORY_SECONDS

        def prune() -> None:
            with self._database.write() as connection:
                history.prune(connection, before, self._max_history_items)

        await in_thread(prune)
