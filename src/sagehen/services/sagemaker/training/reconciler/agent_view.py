"""What control knows of the attempts at an agent: what it was told, and what it has asked."""

from collections.abc import Mapping

from sagehen.frame.job_specs import JobOutcome, JobReport
from sagehen.services.sagemaker.training.reconciler.plan import AttemptPresence, Sight
from sagehen.services.sagemaker.training.records import TrainingJobRecord

__all__ = ["AgentView"]


class AgentView:
    """Kept in memory only. Of an agent that comes back, nothing is known but what it tells."""

    def __init__(self) -> None:
        self._reports: Mapping[str, JobReport] | None = None
        self._refused: dict[str, JobReport] = {}
        """Attempts that the agent would not take, by id."""
        self._taken: set[str] = set()
        """Attempts that this agent took, and has not told of yet."""
        self._asked: set[str] = set()
        """Attempts that an agent may have taken: it was asked, and no answer came."""
        self._seen: set[str] = set()
        """Attempts of which an agent has told."""
        self._told: set[tuple[str, str]] = set()
        """What the agent has accepted to do, and has not shown yet: verb and attempt."""

    @property
    def is_there(self) -> bool:
        return self._reports is not None

    @property
    def reported(self) -> frozenset[str]:
        """The attempts that the agent has, and was not told to forget."""
        if self._reports is None:
            return frozenset()
        return frozenset(one for one in self._reports if ("delete", one) not in self._told)

    def look(self, reports: Mapping[str, JobReport] | None) -> None:
        """Take over what the agent tells now; None where it is away."""
        self._reports = reports
        if reports is None:
            self._taken.clear()
            self._told.clear()
            return
        self._seen.update(reports)
        self._taken -= reports.keys()
        self._asked -= reports.keys()
        self._told = {(verb, one) for verb, one in self._told if one in reports}

    def forget_all_but(self, newest: frozenset[str]) -> None:
        """Keep nothing of attempts that no job is at any more."""
        self._seen &= newest
        self._taken &= newest
        self._asked &= newest
        for one in self._refused.keys() - newest:
            del self._refused[one]

    def sight(self, record: TrainingJobRecord) -> Sight:
        """What is known of a job's newest attempt."""
        one = record.attempt_id
        if self._reports is None:
            return Sight(presence=AttemptPresence.UNKNOWN)
        report = self._reports.get(one) or self._refused.get(one)
        if report is not None:
            return Sight(presence=AttemptPresence.THERE, report=report)
        if one in self._taken:
            return Sight(presence=AttemptPresence.UNKNOWN)
        if one in self._asked:
            return Sight(presence=AttemptPresence.ASKED)
        was_there = one in self._seen or record.phases > 0
        return Sight(presence=AttemptPresence.LOST if was_there else AttemptPresence.ABSENT)

    def has_to_be_stopped(self, attempt_id: str) -> bool:
        """Whether the agent has it, or may have it, and is not ending it."""
        if attempt_id in self._asked:
            return True
        report = (self._reports or {}).get(attempt_id)
        if report is None or report.outcome is not None or report.stopping:
            return False
        return ("stop", attempt_id) not in self._told

    def note_asked(self, attempt_id: str) -> None:
        """No answer came. An agent that was away since may be the same, and have taken it."""
        self._asked.add(attempt_id)

    def note_absent(self, attempt_id: str) -> None:
        """The agent says so, asked after all that it was asked before."""
        self._asked.discard(attempt_id)

    def note_taken(self, attempt_id: str) -> None:
        self._asked.discard(attempt_id)
        if self._reports is not None and attempt_id not in self._reports:
            self._taken.add(attempt_id)

    def note_told(self, verb: str, attempt_id: str) -> None:
        """`verb` is `stop` or `delete`."""
        if self._reports is not None and attempt_id in self._reports:
            self._told.add((verb, attempt_id))

    def note_refused(self, attempt_id: str, why: str) -> None:
        """The agent says that no attempt can be made of it: as good as one that failed."""
        self._refused[attempt_id] = JobReport(
            attempt_id=attempt_id, outcome=JobOutcome.FAILED, failure_reason=f"ClientError: {why}"
        )
