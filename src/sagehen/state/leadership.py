"""Leadership: of all controls that share a state in PostgreSQL, one runs the loops.

    undecided ──► stands by ──(the row is free, or has expired)──► leads
        ▲             ▲                                             │
        └─────────────┴───(not renewed in time, or another epoch)───┘

The leader renews one row by the database's clock; its epoch grows by one with each take-over. A
leader that was stopped and goes on finds out by its own clock, and at the latest in its next
transaction: each checks the epoch.

In SQLite each loop holds a lease of its own, by a file lock, and the epoch is always 1.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads, Wake
from sagehen.base.errors import StateError
from sagehen.base.retry import AWAY
from sagehen.state import leader_row
from sagehen.state.database import Database, describe_outage
from sagehen.state.leases import HeldLease, LeaseLost, LoopLease

__all__ = ["LEADERSHIP_CHANGED", "LEASE_SECONDS", "LOOK_SECONDS", "Leadership"]

log = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_SECONDS = 3.0
LOOK_SECONDS = 1.0
"""between renewals, and between looks of a control that stands by"""
FIRST_WAIT_SECONDS = 0.3
"""for transactions of the last leader, before its sessions are ended"""
SECOND_WAIT_SECONDS = 5.0
LEADERSHIP_CHANGED = "leadership"
"""notification channel: look now"""


class Leadership:
    """Whether this control leads.

    Args:
        holder: names the home and its machine, so that a restarted control leads again at once.
    """

    def __init__(self, database: Database, clock: Clock, holder: str) -> None:
        self.holder = holder
        self.leader: str | None = None
        """the holder that leads, as of the last look, if another"""
        self._database = database
        self._clock = clock
        self._epoch: int | None = None if database.is_shared else 1
        self._valid_until = -math.inf if database.is_shared else math.inf
        """seconds, monotonic"""
        self._decided = asyncio.Event()
        """set while this control leads or knows that another does"""
        self._is_first = True
        self._renewals = 0
        """since the epoch began; each is a transaction that says nothing"""
        self._wake = Wake()
        self._listeners: list[Callable[[], None]] = []
        self._thread = Threads(1, "leadership")
        """its own, as others may all wait for locks"""
        self._connection: Connection | None = None
        self.outage = ""
        """why the row could not be read in the last look; empty if it could"""
        database.listen(LEADERSHIP_CHANGED, lambda _: self._wake.hint())

    @property
    def is_leader(self) -> bool:
        return self._epoch is not None and self._clock.monotonic() < self._valid_until

    @property
    def epoch(self) -> int | None:
        """None while this control does not lead."""
        return self._epoch if self.is_leader else None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` in the event loop when this control begins or ceases to lead."""
        self._listeners.append(listener)

    def lease(self, name: str) -> LoopLease:
        """Returns the right to run the loop `name`."""
        if self._database.is_shared:
            return _LeaderLease(self, name)
        return HeldLease(self._database, self._clock, name, self.holder)

    def check(self, connection: Connection, epoch: int | None = None) -> None:
        """Call it in each transaction that must not be of an old leader.

        Args:
            epoch: since which the caller has led; default: the one now.

        Raises LeaseLost.
        """
        if not self._database.is_shared:
            return
        current = self._epoch
        if current is None or epoch not in (None, current):
            raise LeaseLost(f"{self.holder} does not lead.")
        if not leader_row.check_epoch(connection, current, self._database.session):
            self._lose(current)
            raise LeaseLost(f"{self.holder} no longer leads: epoch {current} is over.")

    async def decided(self) -> None:
        """Waits until this control leads, or knows that another does."""
        if self._database.is_shared and not self.is_leader:
            if self._epoch is not None:
                self._decided.clear()  # expired by our own clock, and not looked since
            await self._decided.wait()

    async def run(self) -> None:
        """Looks until cancelled; then call `let_go` when nothing is led any more."""
        self._wake.begin()
        while self._database.is_shared:
            self._wake.clear()
            seconds = await self._look_or_back_off()
            await self._wake.rest(seconds)

    async def look(self) -> float:
        """Renews, or takes what is free; returns the seconds until the next look.

        Raises:
            SQLAlchemyError: the state is away.
            StateError: a newer version of Sagehen has made the state unusable for this one.
        """
        try:
            return await self._look()
        except StateError:
            self._valid_until = -math.inf
            raise

    async def _look(self) -> float:
        asked_at = self._clock.monotonic()
        epoch = self._epoch
        if epoch is not None and await self._thread.run_to_end(lambda: self._renew(epoch)):
            self._valid_until = asked_at + LEASE_SECONDS
            self._decided.set()
            return LOOK_SECONDS
        self._change(None)
        return await self._look_at_other(asked_at)

    async def let_go(self) -> None:
        """Gives leadership to the next; call it when nothing is led any more."""
        if not self._database.is_shared:
            return
        epoch, self._epoch = self._epoch, None
        with contextlib.suppress(*AWAY):
            await self._thread.run_to_end(lambda: self._release(epoch))
        self._disconnect()
        self._thread.close()

    async def _look_or_back_off(self) -> float:
        try:
            seconds = await self.look()
        except AWAY as error:
            self._disconnect()
            self._database.commits.note(None)
            is_new = not self.outage
            self.outage = describe_outage(error)
            if is_new:
                extra = {"action": "lead", "holder": self.holder}
                log.error("Leadership cannot be looked at: %s", error, extra=extra)
            if not self.is_leader:
                self._decided.clear()
            return LOOK_SECONDS
        self.outage = ""
        return seconds

    async def _look_at_other(self, asked_at: float) -> float:
        look = await self._thread.run_to_end(lambda: self._ask(leader_row.look_at))
        is_heir = self._is_first and look is not None and look.holder == self.holder
        if look is None or look.seconds <= 0 or is_heir:
            epoch = await self._thread.run_to_end(lambda: self._take(look, is_heir))
            if epoch is not None:
                self._valid_until = asked_at + LEASE_SECONDS
                self._change(epoch)
                return LOOK_SECONDS
            look = await self._thread.run_to_end(lambda: self._ask(leader_row.look_at))
        self._is_first = False
        self.leader = look.holder if look is not None else None
        self._decided.set()
        if look is None:
            return LOOK_SECONDS
        self._database.commits.note((0, look.commits))
        return min(LOOK_SECONDS, max(0.01, look.seconds))

    def _renew(self, epoch: int) -> bool:
        """Runs in a thread, like all that uses the connection."""
        session = self._database.session
        commits = self._ask(
            lambda connection: leader_row.renew(connection, epoch, session, LEASE_SECONDS)
        )
        if commits is None:
            return False
        self._database.commits.note((epoch, commits - self._renewals))
        self._renewals += 1
        return True

    def _take(self, look: leader_row.Look | None, is_heir: bool) -> int | None:
        try:
            epoch = self._take_within(FIRST_WAIT_SECONDS, is_heir)
        except OperationalError as error:
            if look is None or not leader_row.is_lock_timeout(error):
                raise
            self._end_sessions(look.session)
            epoch = self._take_within(SECOND_WAIT_SECONDS, is_heir)
        if epoch is not None and look is not None:
            self._end_sessions(look.session)
        return epoch

    def _take_within(self, wait_seconds: float, is_heir: bool) -> int | None:
        with self._database.write() as connection:
            return leader_row.take(
                connection,
                self.holder,
                self._database.session,
                LEASE_SECONDS,
                is_heir=is_heir,
                wait_seconds=wait_seconds,
            )

    def _end_sessions(self, session: str) -> None:
        ended = self._ask(lambda connection: leader_row.end_sessions(connection, session))
        if ended:
            extra = {"action": "lead", "sessions": ended}
            log.warning("The sessions of the last leader were ended.", extra=extra)

    def _release(self, epoch: int | None) -> None:
        if epoch is not None:
            session = self._database.session
            self._ask(lambda connection: leader_row.release(connection, epoch, session))
            self._database.announce(LEADERSHIP_CHANGED)

    def _lose(self, epoch: int) -> None:
        """Safe from any thread."""
        if self._epoch == epoch:
            self._valid_until = -math.inf
            self._wake.hint()

    def _change(self, epoch: int | None) -> None:
        if epoch == self._epoch:
            return
        self._epoch, self._renewals, self._is_first = epoch, 0, False
        if epoch is None:
            self._decided.clear()
            log.warning("This control leads no longer.", extra={"action": "lead"})
        else:
            self.leader = None
            self._decided.set()
            log.info("This control leads.", extra={"action": "lead", "epoch": epoch})
        for listener in self._listeners:
            listener()

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        """Asks again if the connection has been ended, as a lost leader's is."""
        is_new = self._connection is None
        try:
            return ask(self._connected())
        except SQLAlchemyError:
            self._disconnect()
            if is_new:
                raise
        return ask(self._connected())

    def _connected(self) -> Connection:
        """A connection of its own, kept: a statement a second costs the database little else."""
        if self._connection is None:
            self._connection = self._database.connect_apart()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
            with contextlib.suppress(SQLAlchemyError):
                connection.close()


class _LeaderLease:
    """Leadership as one loop sees it."""

    def __init__(self, leadership: Leadership, name: str) -> None:
        self.name = name
        self.term = 0
        """the epoch in which the loop last began to hold"""
        self.lease = self
        self._leadership = leadership

    @property
    def is_ours(self) -> bool:
        return self._leadership.epoch == self.term

    async def hold(self) -> bool:
        """Waits while nobody knows who leads."""
        await self._leadership.decided()
        epoch = self._leadership.epoch
        if epoch is not None:
            self.term = epoch
        return epoch is not None

    def check(self, connection: Connection, now: float = 0) -> None:
        self._leadership.check(connection, self.term)

    def other_holder(self) -> str | None:
        return self._leadership.leader

    def lose(self) -> None:
        """Leadership finds out by itself."""

    async def let_go(self) -> None:
        """Leadership is let go when all loops have ended."""
