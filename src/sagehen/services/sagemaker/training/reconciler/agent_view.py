"""Control's knowledge of an agent's attempts, from reports and from its own requests."""

from collections.abc import Mapping

from sagehen.frame.job_specs import JobOutcome, JobReport
from sagehen.services.sagemaker.training.reconciler.plan import AttemptFacts, AttemptPresence
from sagehen.services.sagemaker.training.records import TrainingJobRecord

__all__ = ["AgentView"]


class AgentView:
    """Tracks attempts in memory; when the agent returns, only its reports count."""

    def __init__(self) -> None:
        self._reports: Mapping[str, JobReport] | None = None
        self._refused: dict[str, JobReport] = {}
        self._accepted: set[str] = set()
        """Attempts that this agent took, but has not reported yet."""
        self._unconfirmed: set[str] = set()
        """Attempts that an agent may have taken: its answer did not arrive."""
        self._seen: set[str] = set()
        self._requested: set[tuple[str, str]] = set()
        """Verb and attempt of accepted requests that the reports do not show yet."""

    @property
    def is_there(self) -> bool:
        return self._reports is not None

    @property
    def reported(self) -> frozenset[str]:
        if self._reports is None:
            return frozenset()
        return frozenset(
            attempt_id
            for attempt_id in self._reports
            if ("delete", attempt_id) not in self._requested
        )

    def look(self, reports: Mapping[str, JobReport] | None) -> None:
        """`reports` is None while the agent is away."""
        self._reports = reports
        if reports is None:
            self._accepted.clear()
            self._requested.clear()
            return
        self._seen.update(reports)
        self._accepted -= reports.keys()
        self._unconfirmed -= reports.keys()
        self._requested = {
            (verb, attempt_id) for verb, attempt_id in self._requested if attempt_id in reports
        }

    def forget_all_but(self, newest: frozenset[str]) -> None:
        self._seen &= newest
        self._accepted &= newest
        self._unconfirmed &= newest
        for attempt_id in self._refused.keys() - newest:
            del self._refused[attempt_id]

    def facts(self, record: TrainingJobRecord) -> AttemptFacts:
        attempt_id = record.attempt_id
        if self._reports is None:
            return AttemptFacts(presence=AttemptPresence.UNKNOWN)
        report = self._reports.get(attempt_id) or self._refused.get(attempt_id)
        if report is not None:
            return AttemptFacts(presence=AttemptPresence.PRESENT, report=report)
        if attempt_id in self._accepted:
            return AttemptFacts(presence=AttemptPresence.UNKNOWN)
        if attempt_id in self._unconfirmed:
            return AttemptFacts(presence=AttemptPresence.UNCONFIRMED)
        was_there = attempt_id in self._seen or record.phases > 0
        return AttemptFacts(presence=AttemptPresence.LOST if was_there else AttemptPresence.ABSENT)

    def waits_for_gpus(self, record: TrainingJobRecord) -> bool:
        report = (self._reports or {}).get(record.attempt_id)
        return report is not None and report.waits_for_gpus

    def has_to_be_stopped(self, attempt_id: str) -> bool:
        """Whether the agent may have the attempt and is not ending it."""
        if attempt_id in self._unconfirmed:
            return True
        report = (self._reports or {}).get(attempt_id)
        if report is None or report.outcome is not None or report.stopping:
            return False
        return ("stop", attempt_id) not in self._requested

    def note_unconfirmed(self, attempt_id: str) -> None:
        """Note an unanswered request: an agent that was away since may have taken the attempt."""
        self._unconfirmed.add(attempt_id)

    def note_absent(self, attempt_id: str) -> None:
        """Note the agent's answer, after all earlier requests, that it does not have the
        attempt."""
        self._unconfirmed.discard(attempt_id)

    def note_accepted(self, attempt_id: str) -> None:
        self._unconfirmed.discard(attempt_id)
        if self._reports is not None and attempt_id not in self._reports:
            self._accepted.add(attempt_id)

    def note_requested(self, verb: str, attempt_id: str) -> None:
        """Note an accepted `stop` or `delete`."""
        if self._reports is not None and attempt_id in self._reports:
            self._requested.add((verb, attempt_id))

    def note_refused(self, attempt_id: str, reason: str) -> None:
        """Counts a refused attempt as a failed one."""
        self._refused[attempt_id] = JobReport(
            attempt_id=attempt_id,
            outcome=JobOutcome.FAILED,
            failure_reason=f"ClientError: {reason}",
        )
