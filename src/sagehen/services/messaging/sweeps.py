"""Deletes expired subscriptions and messages, and excess deliveries."""

import logging

from sqlalchemy import Connection

from sagehen.base.clock import Clock, ClockJumps
from sagehen.frame.leased_loop import keep_sweeping
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.outbox import Outbox
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.state.group_commit import GroupCommit

__all__ = ["TopicSweeps"]

log = logging.getLogger(__name__)

SWEEP_SECONDS = 30.0
AT_ONCE = 500
"""rows per transaction, to let other writers in"""


class TopicSweeps:
    """Runs every half minute; several controls may do so at once.

    Args:
        most_waiting: deliveries per subscription.
    """

    def __init__(
        self, writes: GroupCommit, outbox: Outbox, clock: Clock, most_waiting: int
    ) -> None:
        self._writes = writes
        self._outbox = outbox
        self._clock = clock
        self._most_waiting = most_waiting
        self._jumps = ClockJumps(clock)
        self._is_first = True

    async def run(self) -> None:
        await keep_sweeping(self.sweep, SWEEP_SECONDS, self._clock, "topics and queues")

    async def sweep(self) -> None:
        # The clock may have been set while no server ran.
        if self._jumps.look() is not None or self._is_first:
            await self._writes.join(self._bound_waits)
            self._is_first = False
        while await self._writes.join(self._sweep_some) > 0:
            pass
        await self._outbox.shed(self._most_waiting)

    def _bound_waits(self, connection: Connection) -> None:
        now = self._clock.now()
        bounded = messages.bound_waits(connection, queues.all(connection), now)
        bounded += deliveries.bound_waits(connection, now)
        if bounded:
            log.warning(
                "The clock was set back: messages and deliveries wait no longer for it.",
                extra={"action": "clock_set", "count": bounded},
            )

    def _sweep_some(self, connection: Connection) -> int:
        now = self._clock.now()
        count = subscriptions.drop_expired(connection, now, AT_ONCE)
        return count + messages.sweep(connection, queues.all(connection), now, AT_ONCE)
