"""How an attempt ended, as far as its containers are concerned."""

from dataclasses import dataclass, replace

from sagehen.agent.jobs.failures import JobFailed
from sagehen.domain.jobs import Outcome

__all__ = ["Ending"]


@dataclass(frozen=True, kw_only=True)
class Ending:
    outcome: Outcome
    reason: str | None = None
    exit_code: int | None = None
    fits: bool = True
    """It has not filled its disk."""

    @property
    def outputs_are_kept(self) -> bool:
        return self.fits and self.outcome is not Outcome.INTERRUPTED

    def without_room(self, why: JobFailed) -> "Ending":
        """The same, where what it left could not be stored."""
        if not self.outputs_are_kept:
            return self  # It goes on from what is kept, or has said why it ended.
        said = "" if self.reason is None else f"{self.reason} "
        return replace(self, outcome=Outcome.FAILED, reason=str(JobFailed(f"{said}{why}")))
