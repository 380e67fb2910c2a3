"""Control's knowledge of an agent's attempts, from reports and from its own requests."""

from collections.abc import Mapping

from sagehen.frame.job_specs import JobOutcome, JobReport
from sagehen.services.sagemaker.training.reconciler.plan import AttemptPresence, Sight
from sagehen.services.sagemaker.training.records import TrainingJobRecord

__all__ = ["AgentView"]


class AgentView:
    """Tracks attempts in memory; when the agent returns, only its reports count."""

    def __init__(self) -> None:
        self._reports: Mapping[str, JobReport] | None = None
        self._refused: dict[str, JobReport] = {}
        self._taken: set[str] = set()
        """Attempts that this agent took, but has not reported yet."""
        self._asked: set[str] = set()
        """Attempts that an agent may have taken: its answer did not arrive."""
        self._seen: set[str] = set()
        self._told: set[tuple[str, str]] = set()
        """Verb and attempt of accepted requests that the reports do not show yet."""

    @property
    def is_there(self) -> bool:
        return self._reports is not None

    @property
    def reported(self) -> frozenset[str]:
        if self._reports is None:
            return frozenset()
        return frozenset(one for one in self._reports if ("delete", one) not in self._told)

    def look(self, reports: Mapping[str, JobReport] | None) -> None:
        """`reports` is None while the agent is away."""
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
        self._seen &= newest
        self._taken &= newest
        self._asked &= newest
        for one in self._refused.keys() - newest:
            del self._refused[one]

    def sight(self, record: TrainingJobRecord) -> Sight:
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
        """Whether the agent may have the attempt and is not ending it."""
        if attempt_id in self._asked:
            return True
        report = (self._reports or {}).get(attempt_id)
        if report is None or report.outcome is not None or report.stopping:
            return False
        return ("stop", attempt_id) not in self._told

    def note_asked(self, attempt_id: str) -> None:
        """Note an unanswered request: an agent that was away since may have taken the attempt."""
        self._asked.add(attempt_id)

    def note_absent(self, attempt_id: str) -> None:
        """Note the agent's answer, after all earlier requests, that it does not have the
        attempt."""
        self._asked.discard(attempt_id)

    def note_taken(self, attempt_id: str) -> None:
        self._asked.discard(attempt_id)
        if self._reports is not None and attempt_id not in self._reports:
            self._taken.add(attempt_id)

    def note_told(self, verb: str, attempt_id: str) -> None:
        """Note an accepted `stop` or `delete`."""
        if self._reports is not None and attempt_id in self._reports:
            self._told.add((verb, attempt_id))

    def note_refused(self, attempt_id: str, why: str) -> None:
        """Count a refused attempt as a failed one."""
        self._refused[attempt_id] = JobReport(
            attempt_id=attempt_id, outcome=JobOutcome.FAILED, failure_reason=f"ClientError: {why}"
        )
