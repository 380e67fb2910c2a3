"""How long a node of a cluster may go on without control, and which control it obeys.

leased ──► jobs are stopped: the lease ran out ──► instances are stopped, too: cut off
   ▲                  │                                     │
   └──────────────────┴────────────── renewed ──────────────┘

A lease counts from the last answer that control has provably received. So when control has waited
for as long, the jobs of a node that it no longer hears have ended, whatever the network does to
requests that are still on their way.
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagehen import __version__
from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import speaks_for_control
from sagehen.base.errors import Conflict, SagehenError, Unavailable
from sagehen.frame.nodes import (
    AGENT_API_VERSIONS,
    LeaseAnswer,
    LeaseRequest,
    check_versions,
)

__all__ = ["ControlLease", "NoControl", "OldEpoch", "require_control"]

log = logging.getLogger(__name__)

SHORTEST_SLEEP_SECONDS = 0.05


class OldEpoch(Conflict):
    """Another control leads by now."""


class NoControl(SagehenError):
    """The certificate is that of a node without a control."""


def require_control(certificate: Any) -> None:
    """Comes before `check_epoch`: the epoch of a node that has no control would lock the leader
    out for good. Raises NoControl.

    Args:
        certificate: the verified one of the other side, as `getpeercert()` returns it.
    """
    if not speaks_for_control(certificate):
        raise NoControl("Only the cluster's controls may ask this of a node.")


class ControlLease:
    """The lease that the leading control renews with each heartbeat.

    Args:
        run_id: of this agent process.
        epoch_file: keeps the highest epoch across restarts.
        cut_off_seconds: how long endpoints' instances serve without control.
    """

    def __init__(self, run_id: str, epoch_file: Path, cut_off_seconds: float, clock: Clock) -> None:
        self.run_id = run_id
        self._epoch_file = epoch_file
        self._cut_off_seconds = cut_off_seconds
        self._clock = clock
        self._epoch = _read_epoch(epoch_file)
        self._jobs_until = -math.inf
        """monotonic"""
        self._cut_off_at = clock.monotonic() + cut_off_seconds
        self.on_new_epoch: Callable[[int], None] = lambda _: None
        """called when another control leads"""

    @property
    def lets_jobs_run(self) -> bool:
        return self._clock.monotonic() < self._jobs_until

    def check_epoch(self, epoch: int) -> None:
        """Raises OldEpoch for an epoch below the highest that this node has seen."""
        if epoch < self._epoch:
            raise OldEpoch(
                f"A control of epoch {self._epoch} leads this node; this request is of {epoch}."
            )
        if epoch > self._epoch:
            draft = self._epoch_file.with_suffix(".new")
            draft.write_text(str(epoch))
            draft.replace(self._epoch_file)
            self._epoch = epoch
            self.on_new_epoch(epoch)

    def require_jobs_allowed(self) -> None:
        """Raises Unavailable where jobs may not run now."""
        if not self.lets_jobs_run:
            raise Unavailable("This node has no lease of control's, without which no job runs.")

    def renew(self, request: LeaseRequest) -> LeaseAnswer:
        """Raises Invalid for a control that speaks no version of ours."""
        check_versions(request)
        now = self._clock.monotonic()
        if request.run_id == self.run_id and request.answered_at is not None:
            until = min(request.answered_at, now) + request.seconds
            self._jobs_until = max(self._jobs_until, until)
        self._cut_off_at = now + self._cut_off_seconds
        return LeaseAnswer(
            run_id=self.run_id,
            answered_at=now,
            versions=AGENT_API_VERSIONS,
            sagehen=__version__,
        )

    async def watch(
        self, stop_jobs: Callable[[], None], stop_instances: Callable[[], None]
    ) -> None:
        """Calls each function when its time has come; never returns."""
        had_lease = is_cut_off = False
        while True:
            now = self._clock.monotonic()
            if had_lease and not self.lets_jobs_run:
                log.warning("Control's lease ran out: jobs end.", extra={"action": "lease_lost"})
                stop_jobs()
            had_lease = self.lets_jobs_run
            if now >= self._cut_off_at and not is_cut_off:
                about = {"action": "cut_off", "seconds": self._cut_off_seconds}
                log.warning("Control was away for too long: instances end.", extra=about)
                stop_instances()
            is_cut_off = now >= self._cut_off_at
            await self._clock.sleep(self._next_look(now))

    def _next_look(self, now: float) -> float:
        times = [at for at in (self._jobs_until, self._cut_off_at) if at > now]
        # With neither, the next renewal cannot be foreseen.
        at = min(times, default=now + 1.0)
        return max(SHORTEST_SLEEP_SECONDS, min(at - now, 1.0))


def _read_epoch(file: Path) -> int:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return 0
