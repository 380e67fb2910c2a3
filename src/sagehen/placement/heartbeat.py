"""The heartbeat to one node: renews its lease each second, and says when the node is lost.

A lost node's endpoint instances are placed elsewhere at once: two of the same do no harm. Its jobs
may have ended for sure only when their lease has run out, which is later: then it is fenced.
"""

import logging
import math
from collections.abc import Awaitable, Callable

from sagehen import __version__
from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid, NobodyListens, NotLeading, SagehenError
from sagehen.frame.nodes import (
    AGENT_API_VERSIONS,
    LeaseAnswer,
    LeaseRequest,
    NodeRequests,
    check_versions,
)

__all__ = ["FENCED_SECONDS", "LEASE_SECONDS", "LOST_SECONDS", "Heartbeat"]

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
LOST_SECONDS = 4.0
"""without an answer"""
REFUSED_SECONDS = 1.0
"""of refused connections: the supervisor holds the agent's socket, so that all processes of the
node have ended, and its endpoint instances with them"""
REFUSED_BEAT_SECONDS = 0.25
LEASE_SECONDS = 8.0
"""longer than a new leader takes to come, so that jobs outlive the death of control"""
FENCED_SECONDS = LEASE_SECONDS + 1.0
"""clocks of two machines differ a little in speed, and killing takes a moment"""
LONGEST_CALL_SECONDS = 2.0
SHORTEST_CALL_SECONDS = 0.2

Renew = Callable[[LeaseRequest, float], Awaitable[LeaseAnswer]]


class Heartbeat:
    """Args:
    on_change: called when the node answers for the first time or again, is lost, or is fenced, and
        when another agent answers.
    """

    def __init__(
        self, node_id: str, renew: Renew, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        self._node_id = node_id
        self._renew = renew
        self._clock = clock
        self._on_change = on_change
        self._heard_at = clock.monotonic()
        """the last answer, or the last moment at which control could not ask"""
        self._refused_since: float | None = None
        """since when each connection was refused"""
        self._answered_at: float | None = None
        """by the agent's clock"""
        self.requests = NodeRequests()
        """in flight on the node's instances, as of the last answer"""
        self.run_id = ""
        """of the agent; empty before its first answer"""
        self.is_lost = False
        self.is_fenced = False
        """no job of this node runs any more"""
        self.refusal = ""
        """why control and the node do not understand each other, where they do not"""
        self._is_untold = False
        """a change that `on_change` has not taken in yet"""

    @property
    def has_answered(self) -> bool:
        return self._answered_at is not None

    @property
    def is_alive(self) -> bool:
        return self.has_answered and not self.is_lost

    @property
    def has_ended(self) -> bool:
        """Whether all processes of the node have ended for sure: nobody listens at its address, and
        its jobs' lease has run out."""
        return self.is_fenced and self._refused_since is not None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            began = self._clock.monotonic()
            try:
                answer = await self._renew(self._request(), self._patience(began))
                check_versions(answer)
            except Invalid as error:
                self._refuse(str(error))
                self._refused_since = None
            except NotLeading:
                # The silence is control's own: a node gets its whole time once control asks again.
                self._heard_at, self._refused_since = self._clock.monotonic(), None
            except NobodyListens:
                if self._refused_since is None:
                    self._refused_since = self._clock.monotonic()
            except SagehenError:
                self._refused_since = None
            except Exception:
                log.exception("A heartbeat failed and is tried again.", extra=self._about())
            else:
                self._note(answer)
            self._look()
            self._tell()
            await self._clock.sleep(self._pause(began))

    def _request(self) -> LeaseRequest:
        return LeaseRequest(
            seconds=LEASE_SECONDS,
            run_id=self.run_id,
            answered_at=self._answered_at,
            versions=AGENT_API_VERSIONS,
            sagehen=__version__,
        )

    def _refuse(self, reason: str) -> None:
        if reason != self.refusal:
            about = self._about() | {"reason": reason}
            log.error("A node cannot be used, as if it did not answer.", extra=about)
        self.refusal = reason

    def _patience(self, now: float) -> float:
        """A call must not hide that the node is lost, or fenced."""
        left = self._next_limit(now) - now
        return max(SHORTEST_CALL_SECONDS, min(LONGEST_CALL_SECONDS, left))

    def _note(self, answer: LeaseAnswer) -> None:
        is_new = answer.run_id != self.run_id or self.is_lost or not self.has_answered
        if self.is_lost:
            log.info("A node answers again.", extra=self._about())
        self._heard_at, self._refused_since = self._clock.monotonic(), None
        self.run_id, self._answered_at = answer.run_id, answer.answered_at
        self.requests = answer.requests
        self.is_lost = self.is_fenced = False
        self.refusal = ""
        self._is_untold = self._is_untold or is_new

    def _look(self) -> None:
        now = self._clock.monotonic()
        silent = now - self._heard_at
        is_lost = self.is_lost or now >= self._lost_at
        is_fenced = self.is_fenced or silent >= FENCED_SECONDS
        if is_lost and not self.is_lost:
            log.warning("A node is lost.", extra=self._about() | {"silent_seconds": silent})
        if (is_lost, is_fenced) != (self.is_lost, self.is_fenced):
            self.is_lost, self.is_fenced = is_lost, is_fenced
            self._is_untold = True

    def _tell(self) -> None:
        """Calls `on_change` for a change. After an error it is called again with the next beat: a
        heartbeat that ended would let the node's lease run out, or show the node as it was."""
        if not self._is_untold:
            return
        try:
            self._on_change()
        except Exception:
            log.exception("A change of a node could not be taken in.", extra=self._about())
        else:
            self._is_untold = False

    @property
    def _lost_at(self) -> float:
        """When the node is lost, if it stays silent."""
        silent_at = self._heard_at + LOST_SECONDS
        if self._refused_since is None:
            return silent_at
        return min(silent_at, self._refused_since + REFUSED_SECONDS)

    def _pause(self, began: float) -> float:
        """Until the next beat, or the moment at which the node is lost or fenced."""
        now = self._clock.monotonic()
        is_refused = self._refused_since is not None and not self.is_lost
        beat = REFUSED_BEAT_SECONDS if is_refused else BEAT_SECONDS
        return max(0.0, min(began + beat, self._next_limit(now)) - now)

    def _next_limit(self, now: float) -> float:
        """Returns when the node is lost or fenced, if it stays silent."""
        limits = (self._lost_at, self._heard_at + FENCED_SECONDS)
        return min((at for at in limits if at > now), default=math.inf)

    def _about(self) -> dict[str, object]:
        return {"action": "heartbeat", "node": self._node_id}
